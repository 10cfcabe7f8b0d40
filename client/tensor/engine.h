// What the Tensor API needs of a session, so that tests can put an interpreter behind it.
//
// The meaning of each method is that of transport::Session (client/session/session.h); only Await
// gives a HostTensor. Errors are its too:
// UNAVAILABLE where nobody answers, and what a Run failed with where its value is awaited.
// Threads: every method may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/lazy/provenance.h"
#include "client/session/session.h"
#include "compiler/ir/host_tensor.h"
#include "wire/blobs/source.h"

namespace outboard {

// One session as the Tensor API sees it.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual uint64_t NewHandle() = 0;
  virtual absl::Status Put(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                           std::string_view bytes) = 0;
  virtual absl::StatusOr<wire::Uploaded> Upload(std::span<const wire::BlobSource> sources) = 0;
  virtual absl::Status PutBlob(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                               uint64_t size_bytes, std::string_view root) = 0;
  virtual absl::Status AwaitRoom() = 0;
  virtual absl::StatusOr<uint64_t> Run(const transport::RunRequest& request) = 0;
  virtual absl::StatusOr<uint64_t> Fetch(std::span<const uint64_t> handles) = 0;
  virtual absl::StatusOr<uint64_t> Save(std::string_view name,
                                        std::span<const transport::SaveEntry> entries) = 0;
  virtual absl::StatusOr<transport::Saved> AwaitSaved(uint64_t seq) = 0;
  virtual absl::StatusOr<std::vector<transport::StoredArray>> Stored(const std::string& name) = 0;
  virtual void Release(uint64_t handle) = 0;
  virtual absl::StatusOr<HostTensor> Await(uint64_t seq, uint32_t index) = 0;
  virtual bool Ready(uint64_t seq, uint32_t index) const = 0;
  virtual void Forget(uint64_t seq, uint32_t index) = 0;
  virtual absl::Status Sync() = 0;
  virtual transport::Stats stats() const = 0;
  virtual absl::Status Close() = 0;

  internal::Provenance& provenance() { return provenance_; }

 private:
  internal::Provenance provenance_;
};

// This thread's engine: that of its innermost EngineScope (engine_scope.h), else the process's. The
// first call connects the process's as the environment says (SessionOptions::FromEnvironment),
// which may block; after that the same engine is returned until it is closed or replaced. Errors:
// those of transport::Session::Connect. A failure is not remembered: the next call tries again.
absl::StatusOr<std::shared_ptr<Engine>> CurrentEngine();

// The engine if there is one; never connects.
std::shared_ptr<Engine> EngineIfConnected();

// Replaces the process's engine; nullptr for "connect at the next use". Tensors realised in another
// one keep it alive and can be read, but cannot be mixed with those of the new one
// (FAILED_PRECONDITION).
void SetEngine(std::shared_ptr<Engine> engine);

// Forgets the process's engine if it is this one: the next use connects anew.
void ReleaseProcessEngine(const Engine& engine);

// Ends the process's session, if there is one: the device is free and the bill stands when it
// returns. Returns the final numbers.
absl::StatusOr<transport::Stats> CloseEngine();

}  // namespace outboard
