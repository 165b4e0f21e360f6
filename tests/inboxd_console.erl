%% SPDX-License-Identifier: MIT
%% Runs inside the private broker of the tests: answers Erlang expressions, one a line, on a Unix socket
%% in a directory that only the servers' user and root can enter.  What rabbitmqctl needs a second and a
%% new virtual machine for takes a millisecond here, so that tests can wait for conditions closely.
-module(inboxd_console).
-export([start/0]).

start() ->
	Path = os:getenv("INBOXD_CONSOLE"),
	_ = file:delete(Path),
	{ok, Listener} = gen_tcp:listen(0, [{ifaddr, {local, Path}}, binary, {packet, line},
		{buffer, 1048576}, {active, false}, {backlog, 16}]),
	Pid = spawn(fun() -> receive go -> accept(Listener) end end),
	ok = gen_tcp:controlling_process(Listener, Pid),
	Pid ! go.

accept(Listener) ->
	{ok, Socket} = gen_tcp:accept(Listener),
	Pid = spawn(fun() -> receive go -> serve(Socket) end end),
	ok = gen_tcp:controlling_process(Socket, Pid),
	Pid ! go,
	accept(Listener).

serve(Socket) ->
	case gen_tcp:recv(Socket, 0) of
		{ok, Line} ->
			ok = gen_tcp:send(Socket, [answer(binary_to_list(Line)), $\n]),
			serve(Socket);
		{error, _} ->
			gen_tcp:close(Socket)
	end.

answer(Text) ->
	try
		{ok, Tokens, _} = erl_scan:string(Text),
		{ok, Expressions} = erl_parse:parse_exprs(Tokens),
		{value, Value, _} = erl_eval:exprs(Expressions, erl_eval:new_bindings()),
		io_lib:format("~0p", [Value])
	catch
		Class:Reason -> io_lib:format("error ~0p", [{Class, Reason}])
	end.
