// A server's frames, honest or not, in the client's core, between the program's calls. Whatever
// comes: frames that leave keep the wire's limits, a new item's number is the next (C1), an Ack
// covers nothing that is awaited (C4), and after the end whatever was asked for can be taken (C5).

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/check.h"
#include "client/session/core/session_core.h"
#include "tests/fuzz/byte_source.h"
#include "tests/fuzz/wire_seeds.h"

using namespace outboard;
using namespace outboard::session;

namespace {

using State = SessionCore::State;

// The kinds of step that seeds name.
enum Step { kOpened, kRaw, kDone, kPut, kRun, kFetch, kLose, kFail, kValue, kTake, kSteps };

class Program {
 public:
  explicit Program(test::ByteSource bytes) : bytes_(bytes) {
    core_.Open(1);
    Flush();
  }

  void Play() {
    while (!bytes_.empty()) {
      TakeStep(bytes_.Below(kSteps + 6));
      Flush();
    }
    core_.End(absl::UnavailableError("the link broke"));
    Flush();
    for (const auto& [seq, index] : asked_) {
      OB_CHECK(core_.Ready(seq, index));
      (void)core_.Take(seq, index);
    }
  }

 private:
  // As Session allows it: with room in the window, and while there is a session.
  bool CanSend() const {
    return core_.state() != State::kEnded && core_.state() != State::kClosing && core_.HasWindow(0);
  }
  bool HasLink() const {
    return core_.state() == State::kOpen || core_.state() == State::kOpening ||
           core_.state() == State::kClosing;
  }

  void TakeStep(int step) {
    core_.Advance(now_ += std::chrono::microseconds(bytes_.Byte()));
    if (step >= kSteps) step = kValue + step % 2;  // Most steps answer something.
    switch (step) {
      case kPut:
        if (!CanSend()) return;
        Sent(core_.Put(bytes_.Byte(), 1, std::vector<int64_t>{bytes_.Below(4)},
                       std::make_shared<const std::string>(bytes_.Below(64), 'x')));
        return;
      case kRun: return MakeRun();
      case kFetch: {
        core_.Release(bytes_.Byte());
        if (!CanSend()) return;
        const uint64_t handle = bytes_.Byte();
        const uint64_t seq = core_.Fetch(std::span(&handle, 1)).value();
        Sent(seq);
        asked_.insert({seq, 0});
        return;
      }
      case kTake: return TakeOne();
      case kLose:
        if (core_.state() == State::kLost) return core_.Resume();
        if (bytes_.OneIn(16) && HasLink()) return core_.Close();
        if (bytes_.OneIn(4) && core_.can_resume()) return core_.OnLinkLost();
        return;
      default: return Receive(step);
    }
  }

  void MakeRun() {
    if (!CanSend()) return;
    RunRequest request;
    request.graph_id.fill(bytes_.Byte() % 4);
    request.graph = std::make_shared<const std::string>(bytes_.Below(8), 'g');
    for (int i = bytes_.Below(3); i > 0; --i) request.inputs.push_back(bytes_.Byte());
    for (int i = bytes_.Below(3); i > 0; --i) request.outputs.push_back(bytes_.Byte());
    for (int i = bytes_.Below(3); i > 0; --i) request.fetch.push_back(bytes_.Below(3));
    const absl::StatusOr<uint64_t> seq = core_.Run(request);
    if (!seq.ok()) return;
    Sent(*seq);
    for (const uint32_t index : request.fetch) asked_.insert({*seq, index});
  }

  void TakeOne() {
    if (asked_.empty()) return;
    const auto one = std::next(asked_.begin(), bytes_.Byte() % asked_.size());
    const auto [seq, index] = *one;
    if (bytes_.OneIn(8)) {
      core_.Forget(seq, index);
    } else {
      if (!core_.Ready(seq, index)) return;
      (void)core_.Take(seq, index);
      OB_CHECK(!core_.Take(seq, index).ok());  // C3
    }
    asked_.erase(one);
  }

  void Receive(int step) {
    if (!HasLink()) return;  // frames come on links
    proto::ServerFrame frame;
    if (step == kRaw) {
      const std::string_view block = bytes_.Block();
      if (!frame.ParseFromArray(block.data(), static_cast<int>(block.size()))) return;
    } else {
      frame.set_epoch(epoch_ - bytes_.OneIn(16));
      MakeAnswer(step, frame);
    }
    core_.OnFrame(frame);
  }

  void MakeAnswer(int step, proto::ServerFrame& frame) {
    proto::ServerItem& item = *frame.add_items();
    switch (step) {
      case kOpened:
        frame.set_epoch(++epoch_);
        item.mutable_opened()->set_resume_token("sixteen bytes id");
        item.mutable_opened()->set_applied_seq(bytes_.Byte());
        item.mutable_opened()->set_recoverable(bytes_.OneIn(2));
        if (!bytes_.OneIn(4)) return;
        item.mutable_opened()->mutable_window()->set_items_in_flight_max(bytes_.Byte());
        item.mutable_opened()->mutable_window()->set_bytes_in_flight_max(bytes_.Byte());
        return;
      case kDone:
        item.mutable_done()->set_through_seq(core_.last_seq() + 1 - bytes_.Below(8));
        if (bytes_.OneIn(4)) item.mutable_done()->set_durable_seq(bytes_.Byte());
        if (bytes_.OneIn(4)) item.mutable_need()->add_graph_ids(std::string(32, bytes_.Below(4)));
        if (bytes_.OneIn(8)) item.mutable_window()->set_bytes_in_flight_max(bytes_.Byte());
        return;
      case kFail:
        item.mutable_failed()->set_seq(bytes_.OneIn(32) ? 0 : 1 + bytes_.Byte());
        item.mutable_failed()->set_code(bytes_.Byte());
        if (bytes_.OneIn(2)) item.mutable_failed()->set_op("ADD");
        return;
      default: {
        proto::Value& value = *item.mutable_done()->add_values();
        if (!asked_.empty()) {
          const auto [seq, index] = *std::next(asked_.begin(), bytes_.Byte() % asked_.size());
          value.set_seq(seq);
          value.set_index(index);
        }
        value.set_offset(bytes_.OneIn(2) ? 0 : bytes_.Below(4));
        value.set_total_bytes(bytes_.Below(8));
        value.set_data(std::string(bytes_.Below(4), 'v'));
      }
    }
  }

  void Sent(uint64_t seq) {
    OB_CHECK(seq > seq_ && seq == core_.last_seq());
    seq_ = seq;
  }

  void Flush() {
    for (const proto::ClientFrame& frame : core_.TakeFrames()) {
      OB_CHECK(frame.ByteSizeLong() <= wire::kFrameBytesMax);
      OB_CHECK(frame.items_size() <= static_cast<int>(wire::kFrameItemsMax));
      for (const proto::ClientItem& item : frame.items()) {
        OB_CHECK(item.seq() <= core_.last_seq());
        if (!item.has_ack()) continue;
        for (const auto& [seq, index] : asked_)
          OB_CHECK(seq > item.ack().through_seq() || core_.Ready(seq, index));
      }
    }
    OB_CHECK(core_.durable_seq() <= core_.last_seq() && core_.done_seq() <= core_.last_seq());
  }

  test::ByteSource bytes_;
  SessionCore core_;
  std::chrono::nanoseconds now_{0};
  uint64_t epoch_ = 0, seq_ = 0;
  std::set<std::pair<uint64_t, uint32_t>> asked_;  // and neither taken nor forgotten
};

// Two Runs with a value each; one comes whole, the other in pieces.
std::string HonestSession() {
  proto::ServerFrame frame;
  frame.set_epoch(1);
  frame.add_items()->mutable_opened()->set_resume_token("sixteen bytes id");
  std::string seed = std::string(1, kRaw) + test::BlockOf(frame.SerializeAsString());
  const std::string run{kRun, 1, 4, 1, 1, 1, 2, 1, 0};
  seed += run + run;
  for (const auto& [seq, offset] : {std::pair{1, 0}, {2, 0}, {2, 2}}) {
    frame.clear_items();
    proto::Done& done = *frame.add_items()->mutable_done();
    done.set_through_seq(2);
    proto::Value& value = *done.add_values();
    value.set_seq(seq);
    value.set_offset(offset);
    value.set_total_bytes(2 * seq);
    value.set_data("ab");
    seed += std::string(1, kRaw) + test::BlockOf(frame.SerializeAsString());
  }
  return seed + std::string{kTake, 0, 0, kTake, 0, 0, kLose, 0, 1, kLose, kOpened, 0, 2, 0};
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  return test::StartWireFuzzer(*argc, *argv, {HonestSession()});
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Program(test::ByteSource(data, size)).Play();
  return 0;
}
