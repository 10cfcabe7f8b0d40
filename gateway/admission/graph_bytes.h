// Counts the bytes of graphs that are in flight: of graphs that are not whole yet, and of whole
// ones until they are checked. An account with many sessions has one limit for all of them.
//
// Threads: any; a Held belongs to one thread at a time, and ends before its GraphBytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gateway/ledger/ids.h"

namespace outboard::gateway {

class GraphBytes {
 public:
  explicit GraphBytes(size_t bytes_max) : bytes_max_(bytes_max) {}

  // Bytes of one account's graph, counted until its end.
  class Held {
   public:
    Held() = default;
    Held(Held&& other) noexcept { *this = std::move(other); }
    Held& operator=(Held&& other) noexcept {
      Clear();
      all_ = std::exchange(other.all_, nullptr);
      tenant_ = other.tenant_;
      bytes_ = std::exchange(other.bytes_, 0);
      return *this;
    }
    ~Held() { Clear(); }
    void Clear() {
      if (all_ != nullptr) all_->Drop(tenant_, bytes_);
      all_ = nullptr;
      bytes_ = 0;
    }

   private:
    friend class GraphBytes;
    GraphBytes* all_ = nullptr;
    TenantId tenant_;
    size_t bytes_ = 0;
  };

  // Adds `bytes` to those of `held`.
  // Errors: RESOURCE_EXHAUSTED  the account has more in flight than it may
  absl::Status Add(TenantId tenant, size_t bytes, Held& held) {
    std::lock_guard lock(mutex_);
    size_t& count = of_tenant_[tenant.value];
    if (count + bytes > bytes_max_) {
      const size_t in_flight = count;
      if (count == 0) of_tenant_.erase(tenant.value);
      return absl::ResourceExhaustedError(absl::StrCat("this account has graphs of ", in_flight,
                                                       " bytes in flight, and ", bytes,
                                                       " more come; limit ", bytes_max_));
    }
    count += bytes;
    held.all_ = this;
    held.tenant_ = tenant;
    held.bytes_ += bytes;
    return absl::OkStatus();
  }

 private:
  void Drop(TenantId tenant, size_t bytes) {
    std::lock_guard lock(mutex_);
    const auto at = of_tenant_.find(tenant.value);
    if (at == of_tenant_.end()) return;
    at->second -= bytes;
    if (at->second == 0) of_tenant_.erase(at);
  }

  const size_t bytes_max_;
  std::mutex mutex_;
  std::map<int64_t, size_t> of_tenant_;  // none of them 0
};

}  // namespace outboard::gateway
