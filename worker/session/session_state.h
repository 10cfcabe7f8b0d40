// A session's state, and how sequenced items change it (proto/cloud.proto): the handle table and
// the kernels in use. One call applies an item and returns the answers for the client.
//
// A failed item is no error of the session: it poisons its outputs and is answered by a failure.
// The order of items, their being applied once, and the sending of answers are ExecutorCore's.
// Threads: one; the engine computes in it.
//
// Errors: INVALID_ARGUMENT   a malformed item
//         NOT_FOUND          a handle that is not defined
//         UNIMPLEMENTED      more than one device
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/cloud.pb.h"
#include "worker/engine/engine.h"
#include "worker/engine/repeat.h"
#include "worker/session/graph_table.h"
#include "worker/session/kept_names.h"
#include "worker/session/kernel_use_log.h"
#include "worker/session/persist_request.h"
#include "worker/session/unacknowledged_answers.h"

namespace outboard::worker {

// The result of applying an item.
struct Outcome {
  bool applied = true;          // false: of a Put of which more pieces are to come
  std::vector<Answer> answers;  // values asked for, or the failure
  absl::Status session_error;   // not OK: the session ends so
};

class SessionState {
 public:
  // `follow`: the kernel use log of the session that is replayed.
  SessionState(Engine* engine, std::vector<KernelUseRecord> follow);
  ~SessionState();

  // By the index of a value: the graph that makes the whole of an array that is stored in parts.
  using JoinGraphs = std::map<uint32_t, const KnownGraph*>;
  // From now on, ApplyRun fails with `why` if its seq is this one: it is known to end the process.
  void Refuse(uint64_t seq, absl::Status why) { refused_[seq] = std::move(why); }
  // `seq` is one above the last applied, or that of the Put under way.
  // `whole`: of the values that `run.fetch` asks for, by output.
  Outcome ApplyRun(uint64_t seq, const proto::Run& run, const KnownGraph& graph,
                   const JoinGraphs& whole = {});
  Outcome ApplyPut(uint64_t seq, const proto::Put& piece);
  // A Put whose bytes came as a blob; the array, of `dims`, is made in their memory.
  Outcome ApplyPutBlob(uint64_t seq, const proto::Put& put, std::vector<int64_t> dims,
                       absl::StatusOr<runtime::DeviceBuffer> contents);
  Outcome ApplyRelease(const proto::Release& release);
  Outcome ApplyFetch(uint64_t seq, const proto::Fetch& fetch, const JoinGraphs& whole = {});
  // Fills in `request`, unless the item fails.
  Outcome ApplySave(uint64_t seq, const proto::Save& save, PersistRequest& request,
                    const JoinGraphs& whole = {});

  // Names for arrays, in place of all names before.
  Outcome ApplyKeep(uint64_t seq, const proto::Keep& keep);
  // As pieces for the client, the last one marked.
  std::vector<proto::Kept> ListKept() const;

  uint64_t put_under_way() const;  // its seq; 0: none
  void ForgetPutUnderWay();        // with its stream
  void Clear();                    // at the end: all arrays go

  // ---- snapshots
  // Appends all handles, in their order, and the kernel use log.
  void AddTo(PersistRequest& request) const;
  // Back from a snapshot, into a fresh state.
  void Hold(uint64_t handle, DeviceArrayPtr array) { handles_[handle] = {std::move(array), {}, 0}; }
  void Poison(uint64_t handle, absl::Status status, uint64_t cause_seq) {
    handles_[handle] = {nullptr, std::move(status), cause_seq};
  }
  absl::Status RestoreNames(const proto::SessionSnapshot& snapshot) {
    return names_.Set(snapshot.names());
  }
  // Kernels are used from Run to Run as `entries` say, by seq and no lower than what was said
  // before; those of `restored` are in the kernel use log already.
  absl::Status RestoreKernelUses(std::span<const KernelUseRecord> restored);
  void Follow(std::span<const KernelUseRecord> entries);

  // Of all repeated Runs; of any thread.
  uint64_t repetitions() const { return repetitions_; }
  size_t handle_count() const { return handles_.size(); }
  const KernelUseLog& kernel_use_log() const { return kernel_use_log_; }

  // Arrays of `stored` use memory while it lives; `let_go` waits until it is released.
  void SetBeingStored(std::weak_ptr<const PersistRequest> stored, std::function<void()> let_go);

 private:
  // An array, or why there is none (poison), and the item that failed first.
  struct Entry {
    DeviceArrayPtr array;
    absl::Status status;
    uint64_t cause_seq = 0;
  };
  struct PartialPut;

  // What can be said of it before its inputs are looked at.
  absl::Status CheckRun(uint64_t seq, const proto::Run& run, const KnownGraph& graph) const;
  // Where an input is poison, `cause_seq` is the item that failed first.
  absl::Status FindInputs(const proto::Run& run, std::vector<DeviceArrayPtr>& inputs,
                          uint64_t& cause_seq) const;
  // Ends the handles of donated inputs, and returns the inputs' slots.
  std::vector<int64_t> EndDonated(const proto::Run& run);
  absl::StatusOr<std::vector<DeviceArrayPtr>> ExecuteGraph(uint64_t seq, const KnownGraph& graph,
                                                           const proto::Run& run,
                                                           std::vector<DeviceArrayPtr> inputs,
                                                           std::span<const int64_t> donated,
                                                           absl::Status& session_error);
  absl::StatusOr<DeviceArrayPtr> Joined(const JoinGraphs& whole, uint32_t index,
                                        DeviceArrayPtr array);
  absl::Status CheckPut(const proto::Put& put) const;
  absl::StatusOr<std::shared_ptr<DeviceArray>> ArrayForPut(const proto::Put& put);
  // Returns true if `status` was caused by memory that a PersistRequest held and has now released.
  bool MadeRoom(const absl::Status& status) const;
  // Poisons `handles`, and is the answer that says so.
  Answer Fail(uint64_t seq, uint64_t cause_seq, const absl::Status& status,
              std::span<const uint64_t> handles, std::string_view graph_id = {});

  Engine* const engine_;
  std::atomic<uint64_t> repetitions_ = 0;
  std::vector<KernelUseRecord> follow_;
  size_t followed_ = 0;  // of follow_
  std::map<uint64_t, absl::Status> refused_;  // by seq
  KernelUseLog kernel_use_log_;
  absl::flat_hash_map<uint64_t, Entry> handles_;
  KeptNames names_;
  std::unique_ptr<PartialPut> put_;
  std::weak_ptr<const PersistRequest> being_stored_;
  std::function<void()> let_go_;
};

}  // namespace outboard::worker
