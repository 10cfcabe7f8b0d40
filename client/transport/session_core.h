// The client's side of a session without I/O: numbers the items, keeps those that are not
// acknowledged, knows which graphs the server has, how much credit is left, which values are
// awaited and which items failed.
//
// Calls take what the program or the stream does; frames to send collect inside and are taken by
// TakeFrames. Not thread-safe: Session owns one under its mutex.
#ifndef OUTBOARD_CLIENT_TRANSPORT_SESSION_CORE_H_
#define OUTBOARD_CLIENT_TRANSPORT_SESSION_CORE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/transport/request.h"
#include "client/transport/session.h"
#include "proto/cloud.pb.h"
#include "proto/limits.h"

namespace outboard::transport {

class SessionCore {
 public:
  enum class State { kNew, kOpening, kOpen, kLost, kClosing, kEnded };

  // ---- what the program does; the frames are taken by TakeFrames
  void Open(uint32_t devices);
  // True if `bytes` more of Put data may be sent now.
  bool HasCredit(uint64_t bytes) const;
  uint64_t Put(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
               std::shared_ptr<const std::string> bytes);
  uint64_t PutBlob(uint64_t handle, uint32_t dtype, std::span<const int64_t> dims,
                   uint64_t total_bytes, std::string_view root);
  absl::StatusOr<uint64_t> Run(const RunRequest& request);
  absl::StatusOr<uint64_t> Fetch(std::span<const uint64_t> handles);
  absl::StatusOr<uint64_t> Save(std::string_view name, std::span<const SaveEntry> entries);
  void Release(uint64_t handle);
  void FlushReleases();  // into the frame under way, without waiting for the next Run
  void Close();
  size_t pending_releases() const { return releases_.size(); }

  // ---- what the stream does
  void OnFrame(proto::ServerFrame& frame);
  void OnLinkLost();              // kOpen only: the ring waits for Resume
  void Resume();                  // a new link: asks for the same session again
  void End(absl::Status status);  // adds how many Runs were done

  std::vector<proto::ClientFrame> TakeFrames();

  // ---- what is known
  State state() const { return state_; }
  const absl::Status& status() const { return status_; }
  bool Ready(uint64_t seq, uint32_t index) const;
  absl::StatusOr<Value> Take(uint64_t seq, uint32_t index);  // Ready only
  void Forget(uint64_t seq, uint32_t index);
  bool SaveReady(uint64_t seq) const;
  absl::StatusOr<Saved> TakeSaved(uint64_t seq);  // SaveReady only
  uint64_t last_seq() const { return next_seq_ - 1; }
  uint64_t done_seq() const { return done_seq_; }
  absl::Status TakeFirstFailure();
  std::vector<std::string> TakeNotices();  // what the gateway has told since, for people
  const proto::Opened& opened() const { return opened_; }
  bool can_resume() const { return !opened_.resume_token().empty(); }
  void FillStats(Stats& stats) const;

 private:
  using ValueKey = std::pair<uint64_t, uint32_t>;

  // One sequenced item as it would be sent again. A Put keeps its bytes beside it, shared and in
  // one piece.
  struct Entry {
    uint64_t seq;
    proto::ClientItem item;
    std::shared_ptr<const std::string> bytes;  // of an inline Put
    std::shared_ptr<const std::string> graph;  // of a Run
  };
  struct Slot {
    Value value;
    uint64_t total_bytes = 0;
    bool complete = false;
    bool forgotten = false;
    absl::Status status;
  };

  Entry& Add(proto::ClientItem item);
  void Emit(const Entry& entry);
  void EmitGraph(const std::string& id, const std::string& bytes);
  void EmitItem(proto::ClientItem item);
  void Expect(uint64_t seq, uint32_t index);
  void OnOpened(const proto::Opened& opened);
  void OnDone(proto::Done& done);
  void OnValue(proto::Value& value);
  void OnFailed(const proto::Failed& failed);
  void OnSaved(const proto::Saved& saved);
  void OnNeed(const proto::Need& need);
  void OnNotice(const proto::Notice& notice);
  void Acknowledge();
  void DropThrough(uint64_t seq);

  State state_ = State::kNew;
  absl::Status status_;
  uint64_t epoch_ = 0;
  uint32_t devices_ = 1;
  uint64_t next_seq_ = 1;
  uint64_t done_seq_ = 0;
  uint64_t acked_seq_ = 0;
  uint64_t bytes_in_flight_ = 0;
  uint32_t items_max_ = wire::kCreditItems;
  uint64_t bytes_max_ = wire::kCreditBytes;

  std::deque<Entry> ring_;             // seq in (done_seq_, next_seq_)
  std::set<std::string> graphs_sent_;  // in this epoch
  std::vector<uint64_t> releases_;
  std::map<ValueKey, Slot> slots_;
  std::set<ValueKey> incomplete_;
  std::map<uint64_t, std::optional<absl::StatusOr<Saved>>> saves_;  // by seq; empty: under way
  absl::Status first_failure_;
  std::vector<std::string> notices_;
  bool ack_due_ = false;  // something came that the executor keeps until an Ack
  std::vector<proto::ClientFrame> frames_;
  size_t frame_bytes_ = 0;  // of frames_.back()

  proto::Opened opened_;
  uint64_t runs_done_ = 0;
  uint64_t runs_ = 0, device_time_us_ = 0, kernels_ = 0, cost_micro_usd_ = 0, seconds_billed_ = 0;
};

}  // namespace outboard::transport

#endif  // OUTBOARD_CLIENT_TRANSPORT_SESSION_CORE_H_
