// Signs the head of the ledger for each account, as its entries are posted, and has the last one at
// hand for every reply that reports a cost.
//
// The first head of an account after a start reads its entries' hashes from the first one on, some
// million a second; later ones read the new entries alone.
// Threads: any. Of blocks for no longer than a map is looked at.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "gateway/ledger/ledger.h"
#include "gateway/proof/heads.h"
#include "proto/cloud.pb.h"
#include "wire/proof/signed_head.h"
#include "wire/proof/signing_key.h"

namespace outboard::gateway {

struct CoveredHead {
  std::shared_ptr<const proto::LedgerHead> head;
  int64_t last_number = 0;  // of the last entry that it covers
};

class HeadSigner final : public LedgerHeads {
 public:
  // `sync` makes durable what is in the ledger (storage::SyncLog); null: each write is.
  HeadSigner(Ledger* ledger, signing::SigningKey key,
             std::function<absl::Status()> sync = nullptr)
      : ledger_(ledger), key_(std::move(key)), sync_(std::move(sync)) {}

  // Null: the account has none yet.
  std::shared_ptr<const proto::LedgerHead> Of(TenantId tenant) const override;

  // Signs the present head, if the last one is older, once it is durable. Blocks on the disk.
  // Errors: the ledger's: DATA_LOSS, UNAVAILABLE; those of `sync`
  absl::StatusOr<CoveredHead> Refresh(TenantId tenant);
  // The same, of what the caller has made durable; but reads a few thousand entries at most: of an
  // account with many it takes several calls until there is a head. For a thread that has other
  // things to do.
  absl::Status RefreshSome(TenantId tenant);

 private:
  struct Account {
    signing::AccountChain chain;
    std::shared_ptr<const proto::LedgerHead> head;
  };
  absl::StatusOr<bool> Read(TenantId tenant, Account& account,
                            const std::function<absl::Status()>& sync)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(reading_);

  Ledger* const ledger_;
  const signing::SigningKey key_;
  const std::function<absl::Status()> sync_;
  absl::Mutex reading_;  // before mutex_
  std::map<TenantId, Account> accounts_ ABSL_GUARDED_BY(reading_);
  mutable absl::Mutex mutex_;
  std::map<TenantId, std::shared_ptr<const proto::LedgerHead>> heads_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace outboard::gateway
