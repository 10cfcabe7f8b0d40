#include "gateway/proof/head_signer.h"

#include "base/check.h"
#include "gateway/base/clock.h"

namespace outboard::gateway {
namespace {
// Some milliseconds of reading.
constexpr int64_t kLinksPerRead = 4096;
}  // namespace

std::shared_ptr<const proto::LedgerHead> HeadSigner::Of(TenantId tenant) const {
  absl::MutexLock lock(&mutex_);
  const auto it = heads_.find(tenant);
  return it == heads_.end() ? nullptr : it->second;
}

// Returns true once `account` has a head of all that there is.
absl::StatusOr<bool> HeadSigner::Read(TenantId tenant, Account& account,
                                      const std::function<absl::Status()>& sync) {
  OB_ASSIGN_OR_RETURN(const ChainLinks read,
                      ledger_->LinksOf(tenant, account.chain.last_number, kLinksPerRead));
  for (const ChainLink& link : read.links)
    account.chain.Add(link.number, link.at.unix_ms, link.body_hash);
  if (read.links.size() == static_cast<size_t>(kLinksPerRead)) return false;
  if (account.head != nullptr && account.head->ledger_entries() == read.last_entry &&
      account.head->ledger_hash() == read.ledger_hash)
    return true;
  if (sync != nullptr) OB_RETURN_IF_ERROR(sync());
  auto head = std::make_shared<proto::LedgerHead>();
  head->set_account(tenant.value);
  head->set_entries(account.chain.entries);
  head->set_account_hash(account.chain.hash);
  head->set_ledger_entries(read.last_entry);
  head->set_ledger_hash(read.ledger_hash);
  head->set_at_unix_ms(WallNow().unix_ms);
  signing::Sign(key_, *head);
  account.head = std::move(head);
  absl::MutexLock lock(&mutex_);
  heads_[tenant] = account.head;
  return true;
}

absl::StatusOr<CoveredHead> HeadSigner::Refresh(TenantId tenant) {
  absl::MutexLock lock(&reading_);
  Account& account = accounts_[tenant];
  for (;;) {
    OB_ASSIGN_OR_RETURN(const bool whole, Read(tenant, account, sync_));
    if (whole) return CoveredHead{account.head, account.chain.last_number};
  }
}

absl::Status HeadSigner::RefreshSome(TenantId tenant) {
  absl::MutexLock lock(&reading_);
  return Read(tenant, accounts_[tenant], nullptr).status();
}

}  // namespace outboard::gateway
