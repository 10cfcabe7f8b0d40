// An entry of the books in memory, the bytes it is hashed by, and what makes one well formed.
// No I/O. Internal to gateway/ledger.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/ledger/ledger.h"

namespace outboard::gateway {

inline constexpr size_t kHashBytes = 32;

// All that an idempotency key stands for: everything but the entry's place in the books.
struct EntryBody {
  std::string key;
  std::string memo;
  std::vector<LedgerLine> lines;
  std::optional<Charge> charge;  // of a use entry; its amount is that of the revenue line
};

// The names of accounts that there are; "tenant:<id>" without leading zeros, so that one account
// has one name.
bool IsAccountName(std::string_view name);

// Checks L1, L4 and the bounds. INVALID_ARGUMENT or OUT_OF_RANGE.
absl::Status CheckCharge(const Charge& charge);
absl::Status CheckTransfer(const Transfer& transfer);

// Sum of the lines is zero (L1), amounts within bounds, accounts known and each named once.
// INVALID_ARGUMENT.
absl::Status CheckLines(const std::vector<LedgerLine>& lines);

// Require what the checks above check.
EntryBody BodyOf(const Charge& charge);
EntryBody BodyOf(const Transfer& transfer);

// The key under which a leased device's seconds from `from_s` are posted. No transfer may use such
// a key.
std::string UseKey(const LeasedDevice& device, int64_t from_s);
inline constexpr std::string_view kUseKeyPrefix = "use/";

// SHA-256 over a domain tag and the body's fields, each with its length: no two bodies have the
// same bytes.
std::string BodyHash(const EntryBody& body);

// Hash n of L5. The chain starts from 32 zero bytes.
std::string EntryHash(std::string_view previous, int64_t number, WallTime at,
                      std::string_view body_hash);

}  // namespace outboard::gateway
