// How a stream ends whose peer hangs up as soon as it has what it waited for, and a call whose
// answer nobody gives.
#include "gateway/streams/stream.h"

#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "gateway/streams/stall_watch.h"
#include "gateway/streams/unary_call.h"
#include "proto/cloud.pb.h"
#include "proto/fleet.grpc.pb.h"

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

class EndsAtOnce final
    : public SendingStream<HangsUp, proto::ServerFrame, PlainQueue<proto::ServerFrame>> {
 public:
  void WriteEnds() { static_cast<HangsUp&>(*this).OnWriteDone(false); }
  std::vector<absl::Status> ends;

 private:
  void OnFinish(const absl::Status& status) override { ends.push_back(status); }
  void OnGone() override {}
};

TEST(Stream, ItsLastMessageAndItsEndAreOne) {
  EndsAtOnce stream;
  stream.SendLast(proto::ServerFrame(), absl::UnauthenticatedError("a wrong key"));
  EXPECT_TRUE(stream.ends.empty()) << "a write is pending";
  stream.WriteEnds();
  ASSERT_EQ(stream.ends.size(), 1u);
  EXPECT_EQ(stream.ends[0].code(), absl::StatusCode::kUnauthenticated) << stream.ends[0];
}

TEST(Stream, NothingIsSentAfterItsLastMessage) {
  EndsAtOnce stream;
  stream.SendLast(proto::ServerFrame(), absl::OkStatus());
  stream.Send(proto::ServerFrame());
  stream.SendLast(proto::ServerFrame(), absl::InternalError("a second end"));
  EXPECT_EQ(stream.queued_bytes(), 0u);
  stream.WriteEnds();
  ASSERT_EQ(stream.ends.size(), 1u);
  EXPECT_TRUE(stream.ends[0].ok()) << stream.ends[0];
}

// A call whose answer somebody else owes, who goes away without it in one of these ways.
enum class Ends { kAnswers, kLetInThrows, kLetInForgets, kWorkThrows, kWorkForgets, kThrowsLater };

class CallsThatEnd final : public StreamedService<proto::Fleet::Service> {
 public:
  CallsThatEnd() { Serve(0, &CallsThatEnd::ServeEnrol); }
  grpc::ServerBidiReactor<proto::EnrolRequest, proto::EnrolReply>* ServeEnrol(
      grpc::CallbackServerContext* context) {
    using Call = UnaryCall<proto::EnrolRequest, proto::EnrolReply>;
    return new Call(
        telemetry::CallMethod::kEnrol, context, &requests_,
        [this](CallRecord&, const Call::Then& then) {
          if (ends == Ends::kLetInThrows) throw std::bad_alloc();
          if (ends != Ends::kLetInForgets) then(Admitted{});
        },
        [this](const Admitted&, const proto::EnrolRequest*, proto::EnrolReply*,
               const Call::Done& done) {
          if (ends == Ends::kWorkThrows) throw std::bad_alloc();
          if (ends == Ends::kWorkForgets) return;
          if (ends == Ends::kAnswers) return done(absl::OkStatus());
          later_.push_back(std::async(std::launch::async, [owed = Call::Done(done)]() mutable {
            const Call::Done mine = std::move(owed);
            throw std::bad_alloc();
          }));
        });
  }
  std::atomic<Ends> ends = Ends::kAnswers;

 private:
  StallWatch requests_{std::chrono::minutes(10)};
  std::vector<std::future<void>> later_;
};

// Its caller would wait for ever, and the end of the server for its caller.
TEST(UnaryCall, WhoseAnswerIsForgotten_EndsAllTheSame) {
  CallsThatEnd calls;
  grpc::ServerBuilder builder;
  builder.RegisterService(&calls);
  const auto server = builder.BuildAndStart();
  const auto stub = proto::Fleet::NewStub(server->InProcessChannel({}));
  for (const Ends ends : {Ends::kAnswers, Ends::kLetInThrows, Ends::kLetInForgets,
                          Ends::kWorkThrows, Ends::kWorkForgets, Ends::kThrowsLater}) {
    calls.ends = ends;
    grpc::ClientContext context;
    proto::EnrolReply reply;
    const grpc::Status status = stub->Enrol(&context, proto::EnrolRequest(), &reply);
    EXPECT_EQ(status.error_code(), ends == Ends::kAnswers
                                       ? grpc::StatusCode::OK
                                       : grpc::StatusCode::RESOURCE_EXHAUSTED)
        << static_cast<int>(ends) << ": " << status.error_message();
  }
  server->Shutdown();
  server->Wait();
}

}  // namespace
}  // namespace outboard::gateway
