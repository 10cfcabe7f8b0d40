// What `outboard price show`, `device ls` and `top` print, from what a gateway answers at its
// operators' socket (gateway/observe/operator_socket.h). Pure, so that tests need no gateway.
// Threads: any. Errors: INVALID_ARGUMENT  it is not such an answer
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace outboard::cli {

using AccountNames = std::map<int64_t, std::string>;  // by number

// Each is text for people, lines that end in a newline.
absl::StatusOr<std::string> PricesText(std::string_view answer);
absl::StatusOr<std::string> DevicesText(std::string_view answer, const AccountNames& accounts);
// A page of at most `lines` lines, cut to `columns`: totals, devices by class, sessions that run
// and those that wait, the dearest first.
absl::StatusOr<std::string> TopText(std::string_view answer, const AccountNames& accounts,
                                    int lines, int columns);

// The same as JSON, one line: the answer's part, with names of accounts.
absl::StatusOr<std::string> PricesJson(std::string_view answer);
absl::StatusOr<std::string> DevicesJson(std::string_view answer, const AccountNames& accounts);
absl::StatusOr<std::string> TopJson(std::string_view answer, const AccountNames& accounts);

}  // namespace outboard::cli
