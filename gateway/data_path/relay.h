// One session's data path: frames between the client's stream and the executor's, looked at as
// little as possible.
//
// Towards the executor: graphs are held until the gate has verified them, a Put by blob passes if
// the tenant has the blob, frames of another epoch are dropped. Towards the client: Opened gets the
// session's names and price, Done the bill, and large values go to a stream of their own where
// there is one. A frame with none of these passes unchanged.
//
// Threads: each side's frames come one at a time; both sides and the driver may call at once. Lock
// order: driver, relay, endpoint.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gateway/blobs/blob_uses.h"
#include "gateway/core/events.h"
#include "gateway/data_path/endpoints.h"
#include "gateway/data_path/graph_admission.h"
#include "gateway/data_path/relay_trace.h"
#include "proto/cloud.pb.h"

namespace outboard::gateway {

// What begins with an epoch: for the executor's Open and the client's Opened.
struct EpochStart {
  uint64_t epoch = 0;
  Token resume_token;
  std::string worker;  // for people
  MicroUsd price_per_hour;
  bool recoverable = false;
  uint32_t snapshot_ms = 0;
  std::string snapshot_root;
};

class Relay {
 public:
  // `clock` is that of traces.
  Relay(SessionId session, TenantId tenant, BlobUses* blobs, GraphAdmission* gate,
        RelayTrace::Clock clock = MonoNow);

  // ---- the driver
  void SetExecutor(ExecutorEndpoint* executor);
  // A new epoch: the executor is told Open, and answers Opened to `client`.
  void Connect(ClientEndpoint* client, const EpochStart& start, const proto::Open& open);
  // Only if it is this one; nullptr: whichever.
  void DropClient(ClientEndpoint* client);
  void DropExecutor(ExecutorEndpoint* executor);
  void EndExecutor();  // closes its stream
  // Large values go there; nullptr: to the client's stream, as all do.
  void SetValues(ValuesEndpoint* values);
  void SetBill(const Bill& bill);
  // What kernels the session's Runs have used since its last snapshot, for the relay that takes
  // over. `replays`: its executor begins, and is told; otherwise it knows.
  using Plan = std::map<std::pair<uint64_t, std::string>, proto::KernelUse>;  // by seq and kernel
  Plan TakePlan();
  void GivePlan(Plan plan, bool replays);
  // The last Done and, unless `why` is OK, a Failed; then the client's stream ends.
  static void SendEnd(ClientEndpoint& client, const absl::Status& why, const Bill& bill,
                      uint64_t epoch, uint64_t through_seq);
  bool busy() const { return sent_seq_ > done_seq_; }
  uint64_t done_seq() const { return done_seq_; }
  uint64_t epoch() const;
  TenantId tenant() const { return tenant_; }
  absl::Status failure() const;  // with which the executor ended the session; OK: it did not

  // ---- the client's stream
  // Whether FromClient would verify, hash or read: then it must not run on gRPC's threads.
  static bool IsHeavy(const proto::ClientFrame& frame);
  // Not OK: the session ends so (INVALID_ARGUMENT, RESOURCE_EXHAUSTED, and those of BlobUses). Sets
  // `pause` when reading should stop until ResumeReading is called by us.
  absl::Status FromClient(ClientEndpoint* client, proto::ClientFrame frame, bool& pause);
  // ---- the executor's stream
  void FromExecutor(ExecutorEndpoint* executor, proto::ServerFrame frame, bool& pause);
  // ---- either, when its queue ran low
  void ExecutorDrained();
  void ClientDrained();

 private:
  absl::Status OnGraph(ClientEndpoint* client, proto::Graph& graph, proto::ClientFrame& out);
  absl::StatusOr<std::optional<std::string>> Join(ClientEndpoint* client,
                                                  const proto::Graph& piece);
  absl::Status CheckBlob(const proto::ClientItem& item, uint64_t behind_seq);
  void ResumeClient();
  void NotePlan(const google::protobuf::RepeatedPtrField<proto::KernelUse>& plan);
  void ForgetPlan(uint64_t durable_seq);
  void SendLarge(proto::Done& done);

  const SessionId session_;
  const TenantId tenant_;
  BlobUses* const blobs_;
  GraphAdmission* const gate_;
  std::atomic<uint64_t> sent_seq_{0}, done_seq_{0};
  RelayTrace trace_;

  mutable std::mutex mutex_;
  ClientEndpoint* client_ = nullptr;
  ExecutorEndpoint* executor_ = nullptr;
  ValuesEndpoint* values_ = nullptr;
  bool client_paused_ = false, executor_paused_ = false;
  EpochStart start_;
  Bill bill_;
  absl::Status failure_;
  std::string graph_id_, graph_bytes_;  // on its way in from client_
  Plan plan_;                           // beyond the last snapshot
  size_t plan_bytes_ = 0;
  bool replays_ = false;  // its executor begins, and has not been told the plan
};

}  // namespace outboard::gateway
