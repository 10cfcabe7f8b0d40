// A ledger entry in memory, the bytes that its hash covers, and the checks for a well-formed entry.
// No I/O. Of gateway/ledger, and of those who check what it wrote (gateway/proof).
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

// Everything that an idempotency key identifies: the entry without its number, stamp and chain
// hash.
struct EntryBody {
  std::string key;
  std::string memo;
  std::vector<LedgerLine> lines;
  std::optional<Charge> charge;  // of a use entry; its amount is that of the revenue line
  int64_t unit_ms = 1;           // of the charge's range in key and hash; 1000 in older entries
};

struct PostedEntry {  // with its place in the books
  int64_t number = 0;
  WallTime at;
  EntryBody body;
};

// True for the name of a possible account. "tenant:<id>" has no leading zeros, so that one account
// has one name.
bool IsAccountName(std::string_view name);

// Checks L1, L4 and the bounds. INVALID_ARGUMENT or OUT_OF_RANGE.
absl::Status CheckCharge(const Charge& charge);
absl::Status CheckTransfer(const Transfer& transfer);

// Checks that the lines sum to zero (L1), amounts are within bounds, and accounts are known and
// each named once. INVALID_ARGUMENT.
absl::Status CheckLines(const std::vector<LedgerLine>& lines);

// Requires that the checks above have passed.
EntryBody BodyOf(const Charge& charge, int64_t unit_ms = 1);
EntryBody BodyOf(const Transfer& transfer);

// Returns the key under which a leased device's time from `from` is posted. No transfer may use a
// key with this prefix.
std::string UseKey(const LeasedDevice& device, int64_t from);
inline constexpr std::string_view kUseKeyPrefix = "use/";

// Returns SHA-256 over a domain tag and the body's fields, each with its length: no two bodies have
// the same bytes.
std::string BodyHash(const EntryBody& body);

// Returns hash n of L5 (ledger.h). The chain starts from 32 zero bytes.
std::string EntryHash(std::string_view previous, int64_t number, WallTime at,
                      std::string_view body_hash);

}  // namespace outboard::gateway
