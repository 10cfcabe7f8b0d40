// Records sessions with the cloud that the environment names (CLOUD_HOST, CLOUD_KEY) as they go
// over the wire: `record_wire FOLDER` writes training.bin and resume.bin. It stands between the
// client and the gateway as a server of its own and passes frames on. Run once for each version of
// the protocol, before the version changes; recorded_wire_test plays what it wrote.
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "client/session/current_session.h"
#include "client/tensor/tensor.h"
#include "proto/cloud.grpc.pb.h"
#include "tests/e2e/recorded_wire.h"
#include "tests/e2e/small_training.h"
#include "tests/support/port_alone.h"

namespace outboard {
namespace {

using test::WireRecord;
using test::WriteRecord;

class NodeBuilder final : public proto::Cloud::Service {
 public:
  // Breaks the first stream when the item of this number was passed on and applied; 0: never.
  NodeBuilder(std::string target, std::string path, uint64_t cut_after_seq)
      : stub_(
            proto::Cloud::NewStub(grpc::CreateChannel(target, grpc::InsecureChannelCredentials()))),
        file_(path, std::ios::binary),
        cut_after_seq_(cut_after_seq) {
    grpc::ServerBuilder builder;
    test::HaveAPortAlone(builder);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~NodeBuilder() override { server_->Shutdown(); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  grpc::Status Session(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<proto::ServerFrame, proto::ClientFrame>* client) override {
    grpc::ClientContext forward;
    for (const auto& [name, value] : context->client_metadata())
      if (name == "authorization")
        forward.AddMetadata("authorization", std::string(value.data(), value.size()));
    auto server = stub_->Session(&forward);
    Record(WireRecord::kStream, "");
    std::atomic<bool> muted = false;
    std::atomic<uint64_t> done = 0;
    std::thread back([&] {
      proto::ServerFrame frame;
      while (server->Read(&frame)) {
        Record(WireRecord::kServerFrame, frame.SerializeAsString());
        if (!muted) client->Write(frame);
        for (const proto::ServerItem& item : frame.items())
          if (item.has_done()) done = std::max<uint64_t>(done, item.done().through_seq());
      }
      if (!muted) context->TryCancel();
    });
    bool cut = false;
    proto::ClientFrame frame;
    while (!cut && client->Read(&frame)) {
      uint64_t last = 0;
      for (const proto::ClientItem& item : frame.items()) last = std::max(last, item.seq());
      cut = cut_after_seq_ != 0 && last >= cut_after_seq_;
      if (cut) muted = true;
      Record(WireRecord::kClientFrame, frame.SerializeAsString());
      server->Write(frame);
      // What is applied when the stream breaks has to be the same when the recording is played.
      while (cut && done < last) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (cut) {
      Record(WireRecord::kCut, "");
      cut_after_seq_ = 0;
      forward.TryCancel();
    } else {
      server->WritesDone();
    }
    back.join();
    const grpc::Status status = server->Finish();
    if (cut) return {grpc::StatusCode::UNAVAILABLE, "cut"};
    Record(WireRecord::kEnd, std::string(1, static_cast<char>(status.error_code())));
    return status;
  }

  void Record(WireRecord::Kind kind, std::string bytes) {
    std::lock_guard lock(mutex_);
    WriteRecord(file_, {kind, std::move(bytes)});
    file_.flush();
  }

  const std::unique_ptr<proto::Cloud::Stub> stub_;
  std::mutex mutex_;
  std::ofstream file_;
  std::atomic<uint64_t> cut_after_seq_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

void RecordTo(const std::string& path, int steps, uint64_t cut_after_seq) {
  session::SessionOptions options = ValueOrDie(session::SessionOptions::FromEnvironment());
  NodeBuilder recorder(options.target, path, cut_after_seq);
  options.target = recorder.address();
  auto session = ValueOrDie(Session::Connect(options));
  Session& raw = *session;
  SetSession(std::move(session));
  {
    test::SmallTraining training;
    for (int i = 0; i < steps; ++i) std::printf("loss %f\n", training.Step().item());
    training.Weights();
  }
  // Of a buffer that nobody made.
  const uint64_t missing = ValueOrDie(raw.Fetch(raw.NewHandle()));
  std::printf("%s\n", raw.Await(missing, 0).status().ToString().c_str());
  const session::Stats stats = ValueOrDie(CloseSession());
  std::printf("%s: %llu runs, %llu bytes up, %llu down\n", path.c_str(),
              static_cast<unsigned long long>(stats.runs),
              static_cast<unsigned long long>(stats.bytes_up),
              static_cast<unsigned long long>(stats.bytes_down));
  SetSession(nullptr);
}

}  // namespace
}  // namespace outboard

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "record_wire: give a folder\n");
    return 2;
  }
  outboard::RecordTo(std::string(argv[1]) + "/training.bin", 8, 0);
  outboard::RecordTo(std::string(argv[1]) + "/resume.bin", 12, 25);
  return 0;
}
