// A client that floods a gateway with the calls of one account, until it is killed:
//
//   flood KIND HOST:PORT KEY      KIND: graphs, uploads, usage, openings, all, resets, or spin
//
// `resets` opens 20,000 streams, cancels each at once, and ends. `spin` sends nothing: it takes
// what processor time it gets, so what it costs others is no gateway's doing.
//
// In life it would be another machine, so it must not take this one's processors from those it
// floods. The lowest niceness alone does not do that: a thread that wakes up waits for the end of
// such a client's turn, 1.4 ms or more, and a step needs several wake-ups. So it has a session of
// its own, whose group of the scheduler (sched(7), autogroups) has the lowest weight.
#include <grpcpp/create_channel.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/sha256.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "proto/account.grpc.pb.h"
#include "proto/cloud.grpc.pb.h"
#include "wire/limits.h"
#include "wire/merkle.h"
#include "wire/version.h"

namespace outboard::bench {
namespace {

constexpr int kResets = 20'000;
constexpr int kThreadsOfCalls = 8;
constexpr int kGraphNodes = 4'000;

std::string target, key;

// A connection of its own.
std::shared_ptr<grpc::Channel> Connect() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

void Present(grpc::ClientContext& context) {
  context.AddMetadata("authorization", absl::StrCat("Bearer ", key));
}

proto::ClientFrame OpenFrame() {
  proto::ClientFrame frame;
  proto::Open& open = *frame.add_items()->mutable_open();
  wire::SetRange(wire::kProtocolOfClients, *open.mutable_protocol());
  wire::SetRange(wire::kGraphSchemas, *open.mutable_graph_schema());
  return frame;
}

// The encoding of a graph of many nodes.
std::string LargeGraph() {
  Graph g;
  const UOp* x = Param(g, 0, DType::kF32, {Dim(64)});
  const UOp* y = x;
  for (int i = 0; i < kGraphNodes; ++i) y = i % 2 == 0 ? Add(g, y, x) : Mul(g, y, x);
  return ValueOrDie(EncodeGraph(Sink(g, {y}))).bytes;
}

// Each graph is another one: its last bytes count up, so that most of it must be looked at.
void Graphs() {
  const auto stub = proto::Cloud::NewStub(Connect());
  std::string bytes = LargeGraph();
  uint64_t count = 0;
  for (;;) {
    grpc::ClientContext context;
    Present(context);
    const auto stream = stub->Session(&context);
    stream->Write(OpenFrame());
    proto::ServerFrame answer;
    uint64_t epoch = 0;
    while (epoch == 0 && stream->Read(&answer))
      for (const proto::ServerItem& item : answer.items())
        if (item.has_opened()) epoch = answer.epoch();
    std::thread reader([&] {
      proto::ServerFrame ignored;
      while (stream->Read(&ignored)) continue;
    });
    for (bool good = epoch != 0; good;) {
      ++count;
      std::memcpy(bytes.data() + bytes.size() - sizeof count, &count, sizeof count);
      proto::ClientFrame frame;
      frame.set_epoch(epoch);
      proto::Graph& graph = *frame.add_items()->mutable_graph();
      graph.set_id(std::string(wire::AsBytes(Sha256(bytes))));
      graph.set_total_bytes(bytes.size());
      graph.set_data(bytes);
      good = stream->Write(frame);
    }
    context.TryCancel();
    reader.join();
    stream->Finish();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// Chunks of 4 MiB that nobody has sent before.
void Uploads() {
  const auto stub = proto::Blobs::NewStub(Connect());
  std::string bytes(wire::kBlobChunkBytes, 'u');
  uint64_t count = reinterpret_cast<uint64_t>(&bytes);
  for (;;) {
    grpc::ClientContext context;
    Present(context);
    proto::UploadReply reply;
    const auto stream = stub->Upload(&context, &reply);
    for (bool good = true; good;) {
      ++count;
      std::memcpy(bytes.data(), &count, sizeof count);
      const std::string chunk(wire::AsBytes(wire::HashChunk(bytes)));
      for (size_t at = 0; good && at < bytes.size(); at += wire::kPieceBytesMax) {
        proto::BlobPiece piece;
        piece.set_chunk(chunk);
        piece.set_chunk_bytes(static_cast<uint32_t>(bytes.size()));
        piece.set_offset(static_cast<uint32_t>(at));
        piece.set_data(bytes.substr(at, wire::kPieceBytesMax));
        good = stream->Write(piece);
      }
    }
    stream->Finish();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void Spin() {
  const std::string bytes(wire::kBlobChunkBytes, 'u');
  for (;;) wire::HashChunk(bytes);
}

void UsageCalls() {
  const auto stub = proto::Account::NewStub(Connect());
  for (;;) {
    grpc::ClientContext context;
    Present(context);
    proto::UsageReply reply;
    stub->Usage(&context, proto::UsageRequest(), &reply);
  }
}

void Openings() {
  const auto stub = proto::Cloud::NewStub(Connect());
  for (;;) {
    grpc::ClientContext context;
    Present(context);
    const auto stream = stub->Session(&context);
    stream->Write(OpenFrame());
    proto::ServerFrame answer;
    stream->Read(&answer);
    proto::ClientFrame close;
    close.set_epoch(answer.epoch());
    close.add_items()->mutable_close();
    stream->Write(close);
    while (stream->Read(&answer)) continue;
    stream->Finish();
  }
}

void Resets() {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([] {
      const auto stub = proto::Cloud::NewStub(Connect());
      for (int i = 0; i < kResets / 4; ++i) {
        grpc::ClientContext context;
        Present(context);
        const auto stream = stub->Session(&context);
        context.TryCancel();
        stream->Finish();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

void TakeWhatIsLeft() {
  if (nice(19) == -1) std::perror("nice");
  if (setsid() < 0) std::perror("setsid");
  std::ofstream group("/proc/self/autogroup");
  if (!(group << "19" << std::flush))
    std::fprintf(stderr, "flood: no autogroups here: figures include this client's own cost\n");
}

int Main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr,
                 "usage: flood graphs|uploads|usage|openings|all|resets|spin HOST:PORT KEY\n");
    return 2;
  }
  TakeWhatIsLeft();
  const std::string kind = argv[1];
  target = argv[2];
  key = argv[3];
  if (kind == "resets") {
    Resets();
    return 0;
  }
  const struct {
    const char* name;
    void (*flood)();
    int threads;
  } kFloods[] = {{"graphs", Graphs, 1},
                 {"uploads", Uploads, kThreadsOfCalls},
                 {"usage", UsageCalls, kThreadsOfCalls},
                 {"openings", Openings, kThreadsOfCalls},
                 {"spin", Spin, kThreadsOfCalls}};
  std::vector<std::thread> threads;
  for (const auto& [name, flood, count] : kFloods)
    for (int i = 0; i < count && (kind == name || (kind == "all" && flood != Spin)); ++i)
      threads.emplace_back(flood);
  for (std::thread& thread : threads) thread.join();
  return 2;  // there is no such kind
}

}  // namespace
}  // namespace outboard::bench

int main(int argc, char** argv) { return outboard::bench::Main(argc, argv); }
