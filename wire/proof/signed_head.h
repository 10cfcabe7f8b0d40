// The head of the ledger as the gateway signs it for one account (LedgerHead in cloud.proto), and
// the chain of hashes over the account's entries that it ends.
//
// Of an account's entries, oldest first, hash k is SHA-256(tag, hash k-1, number, stamp,
// SHA-256(body)) and hash 0 is 32 zero bytes; number, stamp and body are those of the ledger's own
// chain (gateway/ledger/entry.h). So an account can check its own entries without those of others.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "proto/cloud.pb.h"
#include "wire/proof/signing_key.h"

namespace outboard::signing {

inline constexpr size_t kHashBytes = 32;

struct AccountChain {
  int64_t entries = 0;      // how many
  int64_t last_number = 0;  // of the last one, within the ledger
  std::string hash = std::string(kHashBytes, '\0');

  // Adds the account's next entry.
  void Add(int64_t number, int64_t at_unix_ms, std::string_view body_hash);
  bool operator==(const AccountChain&) const = default;
};

// Fills in key and signature.
void Sign(const SigningKey& key, proto::LedgerHead& head);

// Errors: DATA_LOSS  the signature is not that of its key, or a field has no possible value
absl::Status CheckHead(const proto::LedgerHead& head);

}  // namespace outboard::signing
