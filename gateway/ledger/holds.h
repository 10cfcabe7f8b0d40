// Money that is set aside for a lease before it uses it, and the limits that this is checked
// against.
//
// A *hold* is of one leased device: of its usable milliseconds, [0, posted_ms) are charged and
// [posted_ms, funded_ms) are held, which costs exactly what their charges will. It is taken before
// a lease begins, extended while that runs, and made smaller by each posting; what is left is given
// back when the lease ends.
//
// A *budget* bounds an account, a key or a session:
//     cap           what may be charged since the cap was set: spent + held <= cap
//     credit limit  of an account alone: held <= balance + credit limit
// All of them are checked in the transaction that takes the hold, so that no race of several
// sessions, or of several processes, passes one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gateway/ledger/ids.h"
#include "gateway/ledger/money.h"

namespace outboard::gateway {

// How far ahead a lease is paid for; a hold of less than the second cannot begin one, since its
// start would cost us more.
inline constexpr int64_t kHoldMs = 60'000;
inline constexpr int64_t kHoldMsMin = 1'000;

// More than any balance can lack.
inline constexpr MicroUsd kNoCreditLimit{kAmountMaxMicroUsd};

// What a budget is of; stored as these numbers.
enum class BudgetScope : uint8_t { kAccount = 1, kKey = 2, kSession = 3 };

struct SpendBudget {
  std::optional<MicroUsd> cap;
  std::optional<MicroUsd> credit_limit;  // of an account; nothing: the gateway's
  MicroUsd spent;                        // since the cap was set, or ever
  MicroUsd held;
};

struct HoldRequest {
  LeaseId lease;
  TenantId tenant;
  std::string key_id;                        // empty: no key
  std::vector<MicroUsd> prices_per_hour;     // of each device
  int64_t to_ms = 0;                         // of the lease: so much of it is to be paid for
  std::optional<MicroUsd> session_cap = {};  // what the session may cost in all, from now on
  // The cap bounds this hold alone, and the session keeps the one that it has: whoever asks for the
  // hold has yet to enter the session.
  bool is_tentative = false;
};

struct HoldAnswer {
  int64_t funded_ms = 0;  // at most to_ms
  // OK: all of it. RESOURCE_EXHAUSTED: a cap was reached; FAILED_PRECONDITION: the account's
  // credit. Names the limit and how to go on, for the client.
  absl::Status why;
};

}  // namespace outboard::gateway
