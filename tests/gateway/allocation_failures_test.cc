// What is left behind where memory ends: each operation is tried with its first allocation
// failing, then with its second, and so on until it succeeds. What was counted must be taken back.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>

#include "base/check.h"
#include "gateway/admission/graph_admission.h"
#include "gateway/base/limits.h"
#include "gateway/groups/graph_sharder.h"
#include "gateway/streams/stream.h"
#include "proto/cloud.pb.h"
#include "tests/gateway/core_driver_world.h"
#include "tests/gateway/support.h"

namespace {
// Allocations of this thread until one fails; negative: none does.
thread_local int allocations_left = -1;
}  // namespace

void* operator new(size_t bytes) {
  if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
  void* const at = std::malloc(bytes);
  if (at == nullptr) throw std::bad_alloc();
  return at;
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete(void* at, size_t) noexcept { std::free(at); }

namespace outboard::gateway {
namespace {

constexpr TenantId kTenant{1};
constexpr int kAllocationsMax = 300;  // of one operation

// True: `work` needed its allocation number `failing`, counted from 0, and threw without it.
bool Throws(int failing, const std::function<void()>& work) {
  allocations_left = failing;
  bool threw = false;
  try {
    work();
  } catch (const std::bad_alloc&) {
    threw = true;
  }
  allocations_left = -1;
  return threw;
}

// How often `work` threw, until it had all that it needs. Gets the number of the try.
int TimesThrown(const std::function<void(int)>& work) {
  for (int failing = 0; failing < kAllocationsMax; ++failing)
    if (!Throws(failing, [&] { work(failing); })) return failing;
  ADD_FAILURE() << "it never succeeds";
  return 0;
}

TEST(AllocationFailures, OfAVerdict_LeaveNoneThatIsNeverForgotten) {
  GraphAdmission admission;
  const auto graph_of = [](int i) { return "no graph, number " + std::to_string(i); };
  const auto check = [&](const std::string& bytes) {
    const wire::Hash hash = Sha256(bytes);
    admission.Check(kTenant, std::string(wire::AsBytes(hash)), bytes).IgnoreError();
  };
  const int thrown = TimesThrown([&](int i) { check(graph_of(i)); });
  EXPECT_GT(thrown, 3);
  for (int i = 0; i <= static_cast<int>(kGraphVerdictsMax); ++i)
    check(graph_of(kAllocationsMax + i));
  for (int i = 0; i < thrown; ++i)
    EXPECT_FALSE(admission.Knows(kTenant, std::string(wire::AsBytes(Sha256(graph_of(i)))))) << i;
}

TEST(AllocationFailures, OfAWrittenGraph_LeaveNoneThatIsNeverForgotten) {
  size_t bytes = 1;
  GraphSharder sharder(
      [&](const GraphUse& use, std::string_view) -> absl::StatusOr<WrittenGraph> {
        return WrittenGraph{.id = use.graph_id, .bytes = std::string(bytes, 'x')};
      },
      nullptr);
  const auto use_of = [](int i) {
    return GraphUse{.graph_id = "a graph whose number is " + std::to_string(i),
                    .mesh = shard::Mesh{{2}}};
  };
  // An exception of the writer becomes the graph's error. This test looks at what happens after it.
  const int thrown = TimesThrown([&](int i) {
    if (const auto written = sharder.Write(kTenant, use_of(i), ""); !written->status.ok())
      throw std::bad_alloc();
  });
  EXPECT_GT(thrown, 3);
  bytes = kWrittenGraphsBytesMax / 2;
  for (int i = 0; i < 3; ++i) sharder.Write(kTenant, use_of(kAllocationsMax + i), "");
  for (int i = 0; i < thrown; ++i) EXPECT_EQ(sharder.Find(kTenant, use_of(i)), nullptr) << i;
}

TEST(AllocationFailures, OfAFrameThatIsQueued_CountNoBytes) {
  proto::ClientFrame frame;
  for (int i = 0; i < 5; ++i) frame.add_items()->set_seq(1000 + i);
  wire::FrameQueue<proto::ClientFrame> frames;
  PlainQueue<proto::ClientFrame> messages;
  const auto push = [&](auto& queue) {
    return TimesThrown([&](int i) {
      proto::ClientFrame copy = frame;
      copy.set_epoch(i);  // else it is merged
      queue.Push(std::move(copy));
    });
  };
  EXPECT_GT(push(frames), 3);
  EXPECT_GT(push(messages), 3);
  while (!frames.empty()) frames.Pop();
  while (!messages.empty()) messages.Pop();
  EXPECT_EQ(frames.bytes(), 0u);
  EXPECT_EQ(messages.bytes(), 0u);
}

// As a stream of gRPC's, which writes one message at a time.
class Reactor {
 public:
  virtual ~Reactor() = default;
  virtual void OnWriteDone(bool ok) = 0;
  virtual void OnCancel() = 0;
  virtual void OnDone() = 0;
  void StartWrite(const proto::ServerFrame*) { ++written; }
  void Finish(const grpc::Status&) { finished = true; }
  int written = 0;
  bool finished = false;
};
class Sends final : public SendingStream<Reactor, proto::ServerFrame> {
 private:
  void OnGone() override {}
};

// Else it would wait for the end of a write that never began.
TEST(AllocationFailures, OfAMessage_LeaveNoWriteThatNeverEnds) {
  proto::ServerFrame frame;
  frame.add_items()->mutable_done();
  for (int failing = 0;; ++failing) {
    Sends stream;
    const bool threw = Throws(failing, [&] { stream.Send(frame); });
    stream.End(absl::OkStatus());
    EXPECT_EQ(stream.finished, threw) << failing;
    if (!threw) break;
  }
}

}  // namespace
}  // namespace outboard::gateway
