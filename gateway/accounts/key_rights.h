// What an API key may do (its scopes), until when and from where. Fixed when the key is made.
//
// Threads: values, without state of their own.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/accounts/address_range.h"
#include "gateway/ledger/ids.h"

namespace outboard::gateway {

// Stored as these bits.
enum class KeyScope : uint8_t {
  kRun = 1,    // sessions, and the blobs and values that they need
  kUsage = 2,  // reading what was used
  kStore = 4,  // names, and the blobs that they need
  kAdmin = 8,  // making, listing and revoking keys
};

class Scopes {
 public:
  constexpr Scopes() = default;
  constexpr Scopes(KeyScope scope) : bits_(static_cast<uint8_t>(scope)) {}
  constexpr Scopes(std::initializer_list<KeyScope> scopes) {
    for (const KeyScope scope : scopes) bits_ |= static_cast<uint8_t>(scope);
  }
  static constexpr Scopes All() {
    return {KeyScope::kRun, KeyScope::kUsage, KeyScope::kStore, KeyScope::kAdmin};
  }
  // Of a stored row; ignores bits that this version does not know.
  static constexpr Scopes FromBits(int64_t bits) {
    Scopes scopes;
    scopes.bits_ = static_cast<uint8_t>(bits & All().bits_);
    return scopes;
  }
  // Reads "run,usage,store,admin", in any order. INVALID_ARGUMENT: another word, or none.
  static absl::StatusOr<Scopes> Parse(std::string_view text);

  constexpr uint8_t bits() const { return bits_; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool HasAny(Scopes of) const { return (bits_ & of.bits_) != 0; }
  constexpr bool Covers(Scopes other) const { return (other.bits_ & ~bits_) == 0; }
  constexpr Scopes And(Scopes other) const { return FromBits(bits_ & other.bits_); }
  constexpr Scopes Without(Scopes other) const { return FromBits(bits_ & ~other.bits_); }
  std::vector<std::string> Words() const;
  std::string ToString() const;  // as Parse reads it

  constexpr bool operator==(const Scopes&) const = default;

 private:
  uint8_t bits_ = 0;
};

// Of a key that is made without naming any.
inline constexpr Scopes kScopesOfNewKeys = {KeyScope::kRun, KeyScope::kUsage, KeyScope::kStore};

struct KeyRights {
  Scopes scopes = kScopesOfNewKeys;
  std::optional<WallTime> expires_at;  // none: never
  std::vector<AddressRange> from;      // empty: anywhere
  bool operator==(const KeyRights&) const = default;
};

// PERMISSION_DENIED, which names the scopes, unless `held` has one of `any_of`.
absl::Status CheckScope(Scopes held, Scopes any_of);

// Checks that a key with the rights `maker` may make one with `wanted`: no more scopes, no later
// expiry, and each range within one of the maker's. PERMISSION_DENIED: which of them is not so.
absl::Status CheckNoWider(const KeyRights& maker, const KeyRights& wanted);

// "10.0.0.0/8,fd00::/8", and back. INVALID_ARGUMENT: as AddressRange::Parse.
std::string ToString(const std::vector<AddressRange>& ranges);
absl::StatusOr<std::vector<AddressRange>> ParseRanges(std::string_view text);

}  // namespace outboard::gateway
