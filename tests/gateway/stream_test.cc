// How a stream ends whose peer hangs up as soon as it has what it waited for.
#include "gateway/streams/stream.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "proto/cloud.pb.h"

namespace outboard::gateway {
namespace {

// In place of gRPC's reactor. The peer cancels the call when a message is being written to it.
class HangsUp {
 public:
  virtual ~HangsUp() = default;
  virtual void OnWriteDone(bool ok) = 0;
  virtual void OnCancel() = 0;
  virtual void OnDone() = 0;
  void StartWrite(const proto::ServerFrame*) { OnCancel(); }
  void Finish(const grpc::Status&) {}
};

class Ends final
    : public SendingStream<HangsUp, proto::ServerFrame, PlainQueue<proto::ServerFrame>> {
 public:
  void WriteEnds() { static_cast<HangsUp&>(*this).OnWriteDone(false); }
  std::vector<absl::Status> ends;

 private:
  void OnFinish(const absl::Status& status) override { ends.push_back(status); }
  void OnGone() override {}
};

TEST(Stream, ItsLastMessageAndItsEndAreOne) {
  Ends stream;
  stream.SendLast(proto::ServerFrame(), absl::UnauthenticatedError("a wrong key"));
  EXPECT_TRUE(stream.ends.empty()) << "a write is pending";
  stream.WriteEnds();
  ASSERT_EQ(stream.ends.size(), 1u);
  EXPECT_EQ(stream.ends[0].code(), absl::StatusCode::kUnauthenticated) << stream.ends[0];
}

TEST(Stream, NothingIsSentAfterItsLastMessage) {
  Ends stream;
  stream.SendLast(proto::ServerFrame(), absl::OkStatus());
  stream.Send(proto::ServerFrame());
  stream.SendLast(proto::ServerFrame(), absl::InternalError("a second end"));
  EXPECT_EQ(stream.queued_bytes(), 0u);
  stream.WriteEnds();
  ASSERT_EQ(stream.ends.size(), 1u);
  EXPECT_TRUE(stream.ends[0].ok()) << stream.ends[0];
}

}  // namespace
}  // namespace outboard::gateway
