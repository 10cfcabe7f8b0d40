// What a session's data path asks of the store of blobs (BlobRetention; a simulation has its own):
// which blobs the session's items need, so that they stay as long as an item may have to be sent
// again.
//
// Threads: any. Nothing here waits for a disk but RestoreSnapshot.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/ledger/ids.h"
#include "wire/merkle.h"

namespace outboard::gateway {

class BlobUses {
 public:
  virtual ~BlobUses() = default;
  // Before any of the others; again for a session that goes on.
  virtual void BeginSession(TenantId tenant, const SessionId& session) = 0;
  virtual void EndSession(const SessionId& session) = 0;
  // Protects the blobs of a snapshot for a session that goes on from it: after a restart, or as
  // another session that begins with it. `manifests`: of each of its ranks. Reads the disk.
  // NOT_FOUND: some are gone.
  virtual absl::Status RestoreSnapshot(TenantId tenant, const SessionId& session,
                                       std::span<const wire::Hash> manifests) = 0;
  // In bytes. NOT_FOUND: the tenant has no such blob, or not the whole of it.
  virtual absl::StatusOr<uint64_t> SizeOf(TenantId tenant, const wire::Hash& root) = 0;
  // A Put of the session by this blob, as item `seq`. No item up to `behind_seq` is ever applied
  // again, so their blobs may go. NOT_FOUND: the blob; ABORTED: the session has ended.
  virtual absl::Status UseBlob(TenantId tenant, const SessionId& session, const wire::Hash& root,
                               uint64_t seq, uint64_t behind_seq) = 0;
  // These parts, which the session's ranks have stored of item `seq`, are its last snapshot.
  virtual void PartsKept(const SessionId& session, uint64_t seq,
                         const std::vector<wire::Hash>& manifests) = 0;
  // Its ranks begin again with the last snapshot: parts of items behind `seq`, which that holds,
  // become none.
  virtual void ForgetParts(const SessionId& session, uint64_t seq) = 0;
};

}  // namespace outboard::gateway
