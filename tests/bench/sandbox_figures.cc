#include "tests/bench/sandbox_figures.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "client/session/session.h"
#include "proto/fleet.grpc.pb.h"
#include "tests/bench/cloud.h"
#include "tests/bench/report.h"
#include "tests/support/port_alone.h"
#include "tests/support/step.h"
#include "worker/sandbox/granted_parts.h"
#include "worker/supervisor/supervisor.h"

namespace outboard::bench {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kStarts = 40;
// For the next spare executor to be there: sessions do not come faster on one device.
constexpr milliseconds kBetweenStarts{250};
constexpr int kRounds = 40, kStepsOfRound = 100;

double MsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// A gateway that assigns one session after the other, each until its executor has answered Open.
class AssigningGateway final : public proto::Fleet::Service {
 public:
  using JoinStream = grpc::ServerReaderWriter<proto::GatewayCommand, proto::WorkerEvent>;
  using AttachStream = grpc::ServerReaderWriter<proto::ClientFrame, proto::ServerFrame>;

  grpc::Status Join(grpc::ServerContext*, JoinStream* stream) override {
    proto::WorkerEvent event;
    while (stream->Read(&event)) {
      proto::GatewayCommand command;
      if (event.has_register_()) {
        command.mutable_welcome()->set_heartbeat_ms(1000);
        command.mutable_welcome()->set_worker_timeout_ms(60'000);
      } else if (event.has_heartbeat()) {
        command.mutable_heartbeat_ack()->set_beat(event.heartbeat().beat());
      } else {
        continue;
      }
      std::lock_guard lock(mutex_);
      stream->Write(command);
      join_ = stream;
      changed_.notify_all();
    }
    std::lock_guard lock(mutex_);
    join_ = nullptr;
    return grpc::Status::OK;
  }

  grpc::Status Attach(grpc::ServerContext*, AttachStream* stream) override {
    proto::ClientFrame open;
    open.set_epoch(1);
    open.add_items()->mutable_open();
    stream->Write(open);
    proto::ServerFrame frame;
    const bool answered = stream->Read(&frame);
    {
      std::lock_guard lock(mutex_);
      answers_ += answered;
      changed_.notify_all();
    }
    while (stream->Read(&frame)) {
    }
    return grpc::Status::OK;
  }

  double StartOne(int number) {
    proto::GatewayCommand assign;
    const std::string session = absl::StrFormat("session %08d", number);
    assign.mutable_assign()->set_session_id(session);
    assign.mutable_assign()->set_attach_token("0123456789abcdef");
    assign.mutable_assign()->set_placement(1);
    assign.mutable_assign()->add_devices(0);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return join_ != nullptr; });
    const int before = answers_;
    const Clock::time_point begin = Clock::now();
    join_->Write(assign);
    changed_.wait(lock, [&] { return answers_ > before; });
    const double ms = MsSince(begin);
    proto::GatewayCommand release;
    release.mutable_release()->set_session_id(session);
    join_->Write(release);
    return ms;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  JoinStream* join_ = nullptr;
  int answers_ = 0;
};

void StartFigure() {
  AssigningGateway gateway;
  grpc::ServerBuilder builder;
  builder.RegisterService(&gateway);
  int port = 0;
  test::HaveAPortAlone(builder);
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  worker::Supervisor supervisor({.gateway = grpc::CreateChannel(absl::StrCat("127.0.0.1:", port),
                                                                grpc::InsecureChannelCredentials()),
                                 .name = "bench",
                                 .executor = {Beside("outboard"), "executor"}});
  std::thread run([&] { supervisor.Run().IgnoreError(); });
  std::vector<double> times;
  for (int i = 0; i < kStarts; ++i) {
    std::this_thread::sleep_for(kBetweenStarts);
    times.push_back(gateway.StartOne(i));
  }
  supervisor.Stop();
  run.join();
  server->Shutdown(std::chrono::system_clock::now() + milliseconds(500));
  Report("executor_start_ms_p50", Quantile(times, 0.5), "ms",
         absl::StrFormat("90th: %.1f", Quantile(times, 0.9)),
         absl::StrFormat("from Assign to its answer to Open, by gRPC, from the warm pool; %d times",
                         kStarts));
}

std::unique_ptr<Session> Connect(const Cloud& cloud) {
  session::SessionOptions options;
  options.target = cloud.target();
  options.key = cloud.key();
  return ValueOrDie(Session::Connect(options));
}

void StepFigure() {
  if (!worker::GrantedParts().all()) {
    ReportSkipped("sandbox_step_ratio",
                  "this machine does not grant: " + worker::MissingParts(worker::GrantedParts()));
    return;
  }
  const Cloud walled(1), open(1, {{"OUTBOARD_SANDBOX", "0"}});
  const std::unique_ptr<Session> sessions[] = {Connect(walled), Connect(open)};
  std::vector<double> steps[2], ratios;
  for (int round = -1; round < kRounds; ++round) {  // the first compiles
    double medians[2];
    for (const int i : {round & 1, 1 - (round & 1)}) {
      std::vector<double> times;
      for (int step = 0; step < kStepsOfRound; ++step) {
        const Clock::time_point begin = Clock::now();
        OB_CHECK_OK(test::Step(*sessions[i]));
        times.push_back(MsSince(begin));
      }
      medians[i] = Quantile(times, 0.5);
      if (round >= 0) steps[i].push_back(medians[i]);
    }
    if (round >= 0) ratios.push_back(medians[0] / medians[1]);
  }
  Report("sandbox_step_ratio", Quantile(ratios, 0.5), "",
         absl::StrFormat("%.3f ms in the sandbox, %.3f ms without", Quantile(steps[0], 0.5),
                         Quantile(steps[1], 0.5)),
         absl::StrFormat("three floats sent, added and fetched; median of %d turns of %d steps",
                         kRounds, kStepsOfRound));
}

}  // namespace

void SandboxFigures() {
  StartFigure();
  StepFigure();
}

}  // namespace outboard::bench
