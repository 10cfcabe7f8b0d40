// How a stream ends whose peer hangs up as soon as it has what it waited for, and a call whose
// answer nobody gives.
#include "gateway/streams/stream.h"

#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gateway/streams/owed_answer.h"
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
enum class Ends {
  kAnswers,
  kLetInThrows,
  kLetInForgets,
  kWorkThrows,
  kWorkForgets,
  kThrowsLater,
  // These have answered before.
  kLetInThrowsBehind,
  kLetInCallsTwice,
  kWorkThrowsBehind,
  kWorkCallsTwice,
};

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
          if (ends == Ends::kLetInThrowsBehind) throw std::bad_alloc();
          if (ends == Ends::kLetInCallsTwice) then(absl::InternalError("once more"));
        },
        [this](const Admitted&, const proto::EnrolRequest*, proto::EnrolReply*,
               const Call::Done& done) {
          if (ends == Ends::kWorkThrows) throw std::bad_alloc();
          if (ends == Ends::kWorkForgets) return;
          if (ends != Ends::kThrowsLater) {
            done(absl::OkStatus());
            if (ends == Ends::kWorkThrowsBehind) throw std::bad_alloc();
            if (ends == Ends::kWorkCallsTwice) done(absl::InternalError("once more"));
            return;
          }
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
  for (const Ends ends :
       {Ends::kAnswers, Ends::kLetInThrows, Ends::kLetInForgets, Ends::kWorkThrows,
        Ends::kWorkForgets, Ends::kThrowsLater, Ends::kLetInThrowsBehind, Ends::kLetInCallsTwice,
        Ends::kWorkThrowsBehind, Ends::kWorkCallsTwice}) {
    calls.ends = ends;
    grpc::ClientContext context;
    proto::EnrolReply reply;
    const grpc::Status status = stub->Enrol(&context, proto::EnrolRequest(), &reply);
    const bool answers = ends == Ends::kAnswers || ends >= Ends::kLetInThrowsBehind;
    EXPECT_EQ(status.error_code(),
              answers ? grpc::StatusCode::OK : grpc::StatusCode::RESOURCE_EXHAUSTED)
        << static_cast<int>(ends) << ": " << status.error_message();
  }
  server->Shutdown();
  server->Wait();
}

// As where memory ends. The gateway goes on, and so does the watch.
TEST(StallWatch, ACancelThatThrows_IsTriedAgain) {
  StallWatch watch(std::chrono::milliseconds(4));
  std::promise<void> cancelled, other_cancelled;
  int tries = 0;
  const auto watched = watch.Watch([&] {
    if (++tries < 3) throw std::bad_alloc();
    cancelled.set_value();
  });
  const auto other = watch.Watch([&] { other_cancelled.set_value(); });
  watched->Waits();
  other->Waits();
  cancelled.get_future().wait();
  other_cancelled.get_future().wait();
  EXPECT_EQ(tries, 3);
}

// A call of several steps. The test says what its step and its queue do.
struct Steps {
  absl::Status Step() {
    ++steps;
    if (throws) throw std::out_of_range("no such key");
    return result;
  }
  void End(const absl::Status& status) { ends.push_back(status.code()); }
  bool throws = false;
  absl::Status result;
  int steps = 0;
  std::vector<absl::StatusCode> ends;
};
using Job = std::function<void()>;

TEST(OwedAnswer, AStepThatIsPosted_EndsItsCallOnceWhereItFails) {
  using Code = absl::StatusCode;
  struct Case {
    const char* what;
    std::function<void(Job job, std::vector<Job>& later)> post;
    bool throws;
    Code result;
    int steps;
    std::vector<Code> ends;
  };
  const auto at_once = [](const Job& job, std::vector<Job>&) { job(); };
  const auto later = [](Job job, std::vector<Job>& jobs) { jobs.push_back(std::move(job)); };
  const Case cases[] = {
      {"goes on", at_once, false, Code::kOk, 1, {}},
      {"goes on, later", later, false, Code::kOk, 1, {}},
      {"fails", at_once, false, Code::kDataLoss, 1, {Code::kDataLoss}},
      {"throws", at_once, true, Code::kOk, 1, {Code::kInternal}},
      {"throws, later", later, true, Code::kOk, 1, {Code::kInternal}},
      {"is let go of",
       [](const Job&, std::vector<Job>&) {},
       false,
       Code::kOk,
       0,
       {Code::kResourceExhausted}},
      {"is not queued",
       [](const Job&, std::vector<Job>&) { throw std::bad_alloc(); },
       false,
       Code::kOk,
       0,
       {Code::kResourceExhausted}},
      {"is queued, and the queue throws",
       [&](const Job& job, std::vector<Job>& jobs) {
         later(job, jobs);
         throw std::bad_alloc();
       },
       false,
       Code::kOk,
       0,
       {Code::kResourceExhausted}},
      {"is done, and the queue throws",
       [&](const Job& job, std::vector<Job>&) {
         job();
         throw std::bad_alloc();
       },
       false,
       Code::kOk,
       1,
       {}},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    Steps call{.throws = test.throws, .result = absl::Status(test.result, "")};
    std::vector<Job> jobs;
    OwedAnswer<Steps>::RunStepLater(
        &call, [&](Job job) { test.post(std::move(job), jobs); }, &Steps::Step);
    for (const Job& job : std::exchange(jobs, {})) job();
    EXPECT_EQ(call.steps, test.steps);
    EXPECT_EQ(call.ends, test.ends);
  }
}

}  // namespace
}  // namespace outboard::gateway
