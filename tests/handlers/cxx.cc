// SPDX-License-Identifier: MIT
// A handler in C++: exceptions end at its border (but for one that a body asks for), values are taken
// apart by its own classes.
#include <inboxd/handler.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace
{

std::string text(const inboxd_host *host, inboxd_call *call, const char *source)
{
	inboxd_value v = host->get(call, source);
	if (v.data == nullptr)
		throw std::invalid_argument(std::string(source) + " is missing");
	return {v.data, v.size};
}

int32_t handle(const inboxd_host *host, inboxd_call *call)
{
	try {
		std::vector<std::string> words{
			text(host, call, "message_id"), text(host, call, "body")};
		if (words[1] == "throw")
			throw 1; // nobody catches that: on purpose
		std::vector<inboxd_value> args;
		for (const auto &w : words)
			args.push_back({w.data(), w.size()});
		return host->exec(call, "INSERT INTO plain (id, word) VALUES ($1, $2)",
			static_cast<uint32_t>(args.size()), args.data(), nullptr);
	} catch (const std::invalid_argument &e) {
		return host->reject(call, e.what());
	} catch (const std::exception &e) {
		return host->retry(call, e.what(), 0);
	}
}

} // namespace

INBOXD_HANDLER(.version = "c++ 1", .handle = handle)
