#include "wire/proof/signed_head.h"

#include "base/sha256.h"

namespace outboard::signing {
namespace {

constexpr std::string_view kChainTag = "outboard.account.chain.1";
constexpr std::string_view kHeadTag = "outboard.ledger.head.1";

std::string Statement(const proto::LedgerHead& head) {
  return StatementBytes(kHeadTag)
      .Int(head.account())
      .Int(head.entries())
      .Bytes(head.account_hash())
      .Int(head.ledger_entries())
      .Bytes(head.ledger_hash())
      .Int(head.at_unix_ms())
      .str();
}

}  // namespace

void AccountChain::Add(int64_t number, int64_t at_unix_ms, std::string_view body_hash) {
  const Sha256Digest digest = Sha256(
      StatementBytes(kChainTag).Bytes(hash).Int(number).Int(at_unix_ms).Bytes(body_hash).str());
  hash.assign(digest.begin(), digest.end());
  last_number = number;
  ++entries;
}

void Sign(const SigningKey& key, proto::LedgerHead& head) {
  head.set_key(key.public_key());
  head.set_signature(key.Sign(Statement(head)));
}

absl::Status CheckHead(const proto::LedgerHead& head) {
  if (head.account() <= 0 || head.entries() < 0 || head.ledger_entries() < head.entries() ||
      head.account_hash().size() != kHashBytes || head.ledger_hash().size() != kHashBytes)
    return absl::DataLossError("a ledger head that no gateway writes");
  if (!IsSignedBy(head.key(), Statement(head), head.signature()))
    return absl::DataLossError("the signature of a ledger head is not that of its key");
  return absl::OkStatus();
}

}  // namespace outboard::signing
