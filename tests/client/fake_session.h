// A cloud in this process: Runs are evaluated by the reference interpreter, and every rule of the
// protocol that a client could break is checked.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "client/session/core/failure.h"
#include "client/session/current_session.h"
#include "compiler/ir/host_tensor.h"
#include "compiler/ir/op.h"

namespace outboard {

class FakeSession : public Session {
 public:
  uint64_t NewHandle() override;
  absl::Status Put(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                   std::string_view bytes) override;
  absl::StatusOr<wire::Uploaded> Upload(std::span<const wire::BlobSource> sources) override;
  absl::Status PutBlob(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                       uint64_t size_bytes, std::string_view root) override;
  absl::Status AwaitWindow() override { return window; }
  absl::StatusOr<uint64_t> Run(const session::RunRequest& request) override;
  absl::StatusOr<uint64_t> Fetch(std::span<const uint64_t> handles) override;
  absl::StatusOr<uint64_t> Save(std::string_view name,
                                std::span<const session::SaveEntry> entries) override;
  absl::StatusOr<session::Saved> AwaitSaved(uint64_t seq) override;
  absl::StatusOr<std::vector<session::StoredArray>> Stored(const std::string& name) override;
  void Release(uint64_t handle) override;
  absl::StatusOr<HostTensor> Await(uint64_t seq, uint32_t index) override;
  bool Ready(uint64_t seq, uint32_t index) const override { return true; }
  void Forget(uint64_t seq, uint32_t index) override { ++forgotten; }
  absl::Status Sync() override { return absl::OkStatus(); }
  absl::Status status() const override { return absl::OkStatus(); }
  session::Stats stats() const override { return {}; }
  absl::Status Close() override;

  int64_t live_buffers() const { return static_cast<int64_t>(buffers_.size()); }
  size_t graph_count() const { return graphs_.size(); }

  int64_t uploads = 0, blob_bytes_read = 0;
  int64_t runs = 0, puts = 0, fetches = 0, awaits = 0, donated = 0, forgotten = 0;
  bool evaluate = true;        // false: results are zeros; for counting only
  bool decode = true;          // false: a Run only counts; its outputs are empty
  absl::Status window;         // not OK: a wait for the window is interrupted with it
  absl::Status fail_next_run;  // the next Run's outputs are poisoned with it
  std::optional<Op> fail_op;   // the operation that it is about, if the cloud knows
  session::RunRequest last;    // the last Run

  // What is stored under names; one that is saved under the name "full" fails.
  std::map<std::string, std::map<std::string, HostTensor>> checkpoints;

 private:
  struct Buffer {
    HostTensor value;
    absl::Status poison;
  };

  std::mutex mutex_;
  uint64_t last_handle_ = 0, last_seq_ = 0;
  bool closed_ = false;
  session::Provenance provenance_;
  std::map<uint64_t, Buffer> buffers_;
  std::map<std::string, std::string> blobs_;  // by root
  std::set<session::GraphId> graphs_;
  std::map<std::pair<uint64_t, uint32_t>, Buffer> tickets_;
  std::map<uint64_t, absl::StatusOr<session::Saved>> saved_;
};

}  // namespace outboard
