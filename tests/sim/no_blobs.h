// Sessions here put no blobs.
#pragma once

#include <span>
#include <vector>

#include "gateway/blobs/blob_uses.h"

namespace outboard::sim {

class NoBlobs final : public gateway::BlobUses {
 public:
  void BeginSession(gateway::TenantId, const gateway::SessionId&) override {}
  void EndSession(const gateway::SessionId&) override {}
  absl::Status RestoreSnapshot(gateway::TenantId, const gateway::SessionId&,
                               std::span<const wire::Hash>) override {
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> SizeOf(gateway::TenantId, const wire::Hash&) override {
    return absl::NotFoundError("no such blob");
  }
  absl::Status UseBlob(gateway::TenantId, const gateway::SessionId&, const wire::Hash&, uint64_t,
                       uint64_t) override {
    return absl::NotFoundError("no such blob");
  }
  void PartsKept(const gateway::SessionId&, uint64_t, const std::vector<wire::Hash>&) override {}
  void ForgetParts(const gateway::SessionId&, uint64_t) override {}
};

}  // namespace outboard::sim
