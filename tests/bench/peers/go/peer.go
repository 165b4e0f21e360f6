// SPDX-License-Identifier: MIT

// peer pool|one|batch|sets: a consumer written by hand on amqp091-go and pgx, for `make bench`.
// pool is a transaction for each message, one the same in a single statement, batch pipelines a hundred of
// these in one transaction, sets has one statement for the hundred.
//
// As pgx's documentation has it: pgxpool for goroutines, statements prepared and cached for each connection
// by itself, a Batch for what can be sent at once, which is one transaction.  As that of amqp091-go has it:
// manual acks with a prefetch, deliveries read by goroutines from their channel.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sort"
	"syscall"
	"time"

	"github.com/jackc/pgx/v4"
	"github.com/jackc/pgx/v4/pgxpool"
	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	poolSize  = 10
	batchSize = 100
	linger    = 2 * time.Millisecond
)

const (
	markerSQL = `INSERT INTO bench_marker (consumer, key) VALUES (1, $1) ON CONFLICT DO NOTHING`
	rowSQL    = `INSERT INTO bench_row (id, account, amount, sent_us) VALUES ($1, $2, $3::text::numeric, $4)`
	bothSQL   = `WITH fresh AS (
			INSERT INTO bench_marker (consumer, key) VALUES (1, $1) ON CONFLICT DO NOTHING RETURNING key)
		INSERT INTO bench_row (id, account, amount, sent_us)
		SELECT $2::text, $3::text, $4::text::numeric, $5::bigint FROM fresh`
	// The amounts as text: pgx would take them apart to send them in binary.
	manySQL = `WITH fresh AS (
			INSERT INTO bench_marker (consumer, key)
			SELECT 1, k FROM unnest($1::text[]) k ON CONFLICT DO NOTHING RETURNING key)
		INSERT INTO bench_row (id, account, amount, sent_us)
		SELECT r.id, r.account, r.amount::numeric, r.sent_us
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[])
			r (key, id, account, amount, sent_us)
		JOIN fresh USING (key)`
)

type order struct {
	key     string
	ID      string `json:"id"`
	Account string `json:"account"`
	Amount  string `json:"amount"`
	SentUs  int64  `json:"sent_us,string"`
}

func orderOf(d *amqp.Delivery) (order, error) {
	o := order{key: d.MessageId}
	err := json.Unmarshal(d.Body, &o)
	return o, err
}

// ---- one message ---------------------------------------------------------------------------

func inTransaction(ctx context.Context, pool *pgxpool.Pool, d *amqp.Delivery) error {
	return pool.BeginFunc(ctx, func(tx pgx.Tx) error {
		claimed, err := tx.Exec(ctx, markerSQL, d.MessageId)
		if err != nil || claimed.RowsAffected() == 0 {
			return err
		}
		o, err := orderOf(d)
		if err == nil {
			_, err = tx.Exec(ctx, rowSQL, o.ID, o.Account, o.Amount, o.SentUs)
		}
		return err
	})
}

func inStatement(ctx context.Context, pool *pgxpool.Pool, d *amqp.Delivery) error {
	o, err := orderOf(d)
	if err == nil {
		_, err = pool.Exec(ctx, bothSQL, o.key, o.ID, o.Account, o.Amount, o.SentUs)
	}
	return err
}

// ---- a batch -------------------------------------------------------------------------------

// Each key once and in order, so that two copies never wait for each other in a circle.
func ordersOf(batch []amqp.Delivery) ([]order, error) {
	orders := make([]order, 0, len(batch))
	seen := make(map[string]bool, len(batch))
	for i := range batch {
		if seen[batch[i].MessageId] {
			continue
		}
		seen[batch[i].MessageId] = true
		o, err := orderOf(&batch[i])
		if err != nil {
			return nil, err
		}
		orders = append(orders, o)
	}
	sort.Slice(orders, func(i, j int) bool { return orders[i].key < orders[j].key })
	return orders, nil
}

func inPipeline(ctx context.Context, pool *pgxpool.Pool, orders []order) error {
	var b pgx.Batch
	for i := range orders {
		o := &orders[i]
		b.Queue(bothSQL, o.key, o.ID, o.Account, o.Amount, o.SentUs)
	}
	results := pool.SendBatch(ctx, &b)
	for range orders {
		if _, err := results.Exec(); err != nil {
			_ = results.Close()
			return err
		}
	}
	return results.Close()
}

func inSets(ctx context.Context, pool *pgxpool.Pool, orders []order) error {
	var columns [4][]string
	sent := make([]int64, 0, len(orders))
	for i := range orders {
		for column, value := range []string{orders[i].key, orders[i].ID, orders[i].Account, orders[i].Amount} {
			columns[column] = append(columns[column], value)
		}
		sent = append(sent, orders[i].SentUs)
	}
	_, err := pool.Exec(ctx, manySQL, columns[0], columns[1], columns[2], columns[3], sent)
	return err
}

// ---- the queue -----------------------------------------------------------------------------

// What goes wrong ends the program: the broker gives what is not acked to the next one.
func consume(connection *amqp.Connection, prefetch int) (*amqp.Channel, <-chan amqp.Delivery) {
	channel, err := connection.Channel()
	if err != nil {
		log.Fatal(err)
	}
	if err := channel.Qos(prefetch, 0, false); err != nil {
		log.Fatal(err)
	}
	deliveries, err := channel.Consume(os.Getenv("BENCH_QUEUE"), "", false, false, false, false, nil)
	if err != nil {
		log.Fatal(err)
	}
	return channel, deliveries
}

type single func(context.Context, *pgxpool.Pool, *amqp.Delivery) error

func consumeEach(connection *amqp.Connection, pool *pgxpool.Pool, work single) {
	_, deliveries := consume(connection, 10*poolSize)
	for i := 0; i < poolSize; i++ {
		go func() {
			for d := range deliveries {
				if err := work(context.Background(), pool, &d); err != nil {
					log.Fatal(err)
				}
				if err := d.Ack(false); err != nil {
					log.Fatal(err)
				}
			}
			log.Fatal("the queue's deliveries have ended")
		}()
	}
}

// Waits for one, and a little for more: the library hands them on one by one, slower than a small batch is
// done with.
func take(deliveries <-chan amqp.Delivery, batch []amqp.Delivery) []amqp.Delivery {
	first, ok := <-deliveries
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for batch = append(batch[:0], first); ok && len(batch) < batchSize; {
		var d amqp.Delivery
		select {
		case d, ok = <-deliveries:
			batch = append(batch, d)
		case <-timer.C:
			return batch
		}
	}
	if !ok {
		log.Fatal("the queue's deliveries have ended")
	}
	return batch
}

type several func(context.Context, *pgxpool.Pool, []order) error

// One batch at a time, while the next ones arrive: one ack is for all of it.
func consumeBatches(connection *amqp.Connection, pool *pgxpool.Pool, work several) {
	channel, deliveries := consume(connection, 10*batchSize)
	var batch []amqp.Delivery
	for {
		batch = take(deliveries, batch)
		orders, err := ordersOf(batch)
		if err == nil {
			err = work(context.Background(), pool, orders)
		}
		if err == nil {
			err = channel.Ack(batch[len(batch)-1].DeliveryTag, true)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: peer pool|one|batch|sets")
	}
	pool, err := pgxpool.Connect(context.Background(), fmt.Sprintf("pool_max_conns=%d", poolSize))
	if err != nil {
		log.Fatal(err)
	}
	connection, err := amqp.Dial(os.Getenv("BENCH_AMQP_URI"))
	if err != nil {
		log.Fatal(err)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	singles := map[string]single{"pool": inTransaction, "one": inStatement}
	severals := map[string]several{"batch": inPipeline, "sets": inSets}
	if work, ok := singles[os.Args[1]]; ok {
		consumeEach(connection, pool, work)
	} else if work, ok := severals[os.Args[1]]; ok {
		go consumeBatches(connection, pool, work)
	} else {
		log.Fatal("usage: peer pool|one|batch|sets")
	}
	<-stop
}
