// The ledger's signed heads, as replies that report a cost carry them. The gateway's process signs
// (gateway/proof/head_signer.h); a simulator has none.
// Threads: any.
#pragma once

#include <memory>

#include "gateway/ledger/ids.h"

namespace outboard::proto {
class LedgerHead;
}  // namespace outboard::proto

namespace outboard::gateway {

class LedgerHeads {
 public:
  virtual ~LedgerHeads() = default;
  // The last one of the account; null: none is signed yet.
  virtual std::shared_ptr<const proto::LedgerHead> Of(TenantId tenant) const = 0;
};

}  // namespace outboard::gateway
