/* SPDX-License-Identifier: MIT */
#include "base/json_each.h"

#include "base/fd.h"
#include "unit.h"

/* All children, as name=kind:raw; one behind the other. */
static void list(const char *text, struct buf *out)
{
	enum json_kind kind;
	struct bytes raw, name;
	const char *why = NULL;
	size_t at;
	ck_assert_msg(json_find(bytes_str(text), "", &kind, &raw, &why, &at), "%s", why);
	struct json_each e = json_each_of(raw);
	while (json_each_next(&e, &name, &kind, &raw)) {
		buf_add(out, name.data, name.size);
		buf_addf(out, "=%d:", (int)kind);
		buf_add(out, raw.data, raw.size);
		buf_add_byte(out, ';');
	}
}

START_TEST(goes_through_an_object)
{
	AUTO(buf) struct buf out = {0};
	list(" { \"a\" : 1 ,\"b\":\"x,}\\\"\" , \"c\":[1,{\"d\":\"]\"}],\"e\\\"\":{} ,\"f\":null,"
	     "\"g\":true,\"h\":-1.5e3}",
		&out);
	ck_assert_str_eq(buf_str(&out),
		"\"a\"=3:1;\"b\"=4:\"x,}\\\"\";\"c\"=5:[1,{\"d\":\"]\"}];\"e\\\"\"=6:{};\"f\"=1:"
		"null;"
		"\"g\"=2:true;\"h\"=3:-1.5e3;");
}
END_TEST

START_TEST(goes_through_an_array)
{
	AUTO(buf) struct buf out = {0};
	list("[ [] ,{ }, \"\\\\\",false ]", &out);
	ck_assert_str_eq(buf_str(&out), "=5:[];=6:{ };=4:\"\\\\\";=2:false;");
}
END_TEST

START_TEST(finds_nothing_in_empty_containers)
{
	AUTO(buf) struct buf out = {0};
	list("{}", &out);
	list("[]", &out);
	list("{ \n }", &out);
	ck_assert_uint_eq(out.size, 0);
}
END_TEST

UNIT_SUITE("base/json_each", goes_through_an_object, goes_through_an_array,
	finds_nothing_in_empty_containers)
