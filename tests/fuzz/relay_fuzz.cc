// Frames of a client and of an executor in the gateway's relay, with clients that come back on
// other streams. The most exposed parser there is: one process for all tenants. Nothing but a
// Status may come of a frame.

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "gateway/blobs/blob_retention.h"
#include "gateway/data_path/relay.h"
#include "tests/fuzz/byte_source.h"
#include "tests/fuzz/wire_seeds.h"
#include "tests/support/unbound_stream.h"

using namespace outboard;
using namespace outboard::gateway;

namespace {

using ClientStream = test::UnboundClient;

constexpr TenantId kTenant{1};
constexpr std::string_view kBlob = "sixteen bytes !!";

const EncodedGraph& SomeGraph() {
  static const auto* const encoded = [] {
    Graph g;
    const UOp* const x = Param(g, 0, DType::kF32, {4});
    return new EncodedGraph(ValueOrDie(EncodeGraph(Sink(g, {Add(g, x, x)}))));
  }();
  return *encoded;
}

// A store with one blob, for the life of the process.
class Blobs {
 public:
  Blobs() {
    char folder[] = "/tmp/relay_fuzz_XXXXXX";
    OB_CHECK(mkdtemp(folder) != nullptr);
    folder_ = folder;
    store_ = ValueOrDie(BlobStore::Open(folder_));
    const auto writer = ValueOrDie(store_->Begin(kTenant, name_.chunks.front()));
    OB_CHECK_OK(writer->Append(kBlob));
    OB_CHECK_OK(writer->Finish());
    OB_CHECK_OK(store_->Commit(kTenant, name_.root, name_.chunks, kBlob.size()));
    blob_retention_ = ValueOrDie(
        BlobRetention::Open(store_.get(), folder_ + "/names.db", [] { return WallTime{}; }));
    blob_retention_->BeginSession(kTenant, SessionId{1, 2});
  }
  ~Blobs() { std::filesystem::remove_all(folder_); }

  BlobRetention* blob_retention() { return blob_retention_.get(); }
  std::string root() const { return std::string(wire::AsBytes(name_.root)); }

 private:
  const wire::BlobName name_ = wire::NameBlob(kBlob);
  std::string folder_;
  std::unique_ptr<BlobStore> store_;
  std::unique_ptr<BlobRetention> blob_retention_;
};

Blobs& TheBlobs() {
  static Blobs blobs;
  return blobs;
}

// The kinds of step that seeds name.
enum Step { kConnect, kDrop, kWritable, kFromExecutor, kFromClient, kGraph, kPut, kSteps };

class Session {
 public:
  explicit Session(test::ByteSource bytes) : bytes_(bytes) { relay_.SetExecutor(&executor_); }

  void Play() {
    while (!bytes_.empty()) TakeStep(bytes_.Below(kSteps));
  }

 private:
  void TakeStep(int step) {
    ClientStream& client = clients_[bytes_.Below(2)];
    bool pause = false;
    proto::ClientFrame frame;
    frame.set_epoch(bytes_.OneIn(8) ? bytes_.Byte() : epoch_);
    switch (step) {
      case kConnect: {
        relay_.Connect(&client, {.epoch = ++epoch_}, {});
        return;
      }
      case kDrop:
        if (bytes_.OneIn(8)) return relay_.DropExecutor(&executor_);
        return relay_.DropClient(bytes_.OneIn(2) ? &client : nullptr);
      case kWritable:
        return bytes_.OneIn(2) ? relay_.ClientWritable() : relay_.ExecutorWritable(&executor_);
      case kFromExecutor: {
        proto::ServerFrame answer;
        if (!Parse(answer)) return;
        if (!bytes_.OneIn(8)) answer.set_epoch(epoch_);
        return relay_.FromExecutor(&executor_, std::move(answer), pause);
      }
      case kFromClient:
        if (!Parse(frame)) return;
        if (!bytes_.OneIn(8)) frame.set_epoch(epoch_);
        break;
      case kGraph: MakeGraph(*frame.add_items()->mutable_graph()); break;
      default: {
        proto::Put& put = *frame.add_items()->mutable_put();
        put.set_blob_root(TheBlobs().root().substr(0, bytes_.OneIn(8) ? bytes_.Byte() : 32));
        put.set_total_bytes(bytes_.OneIn(8) ? bytes_.Byte() : kBlob.size());
      }
    }
    (void)relay_.FromClient(&client, std::move(frame), pause);
  }

  template <typename Frame>
  bool Parse(Frame& frame) {
    const std::string_view block = bytes_.Block();
    return frame.ParseFromArray(block.data(), static_cast<int>(block.size()));
  }

  void MakeGraph(proto::Graph& piece) {
    const EncodedGraph& graph = SomeGraph();
    piece.set_id(graph.id.ToBytes().substr(0, bytes_.OneIn(16) ? bytes_.Byte() : 32));
    piece.set_total_bytes(bytes_.OneIn(8) ? uint64_t{bytes_.Byte()} << bytes_.Below(56)
                                          : graph.bytes.size());
    const size_t begin = bytes_.OneIn(2) ? bytes_.Below(64) : 0;
    piece.set_offset(begin);
    if (begin < graph.bytes.size())
      piece.set_data(
          graph.bytes.substr(begin, bytes_.OneIn(2) ? bytes_.Below(64) : graph.bytes.size()));
    if (bytes_.OneIn(8)) piece.set_refused_code(bytes_.Byte());
  }

  test::ByteSource bytes_;
  GraphAdmission gate_;
  Relay relay_{SessionId{1, 2}, kTenant, TheBlobs().blob_retention(), &gate_};
  test::UnboundExecutor executor_;
  ClientStream clients_[2];
  uint64_t epoch_ = 0;
};

// Connected, answered, then a Run in a frame, a Put by blob and a graph.
std::string HonestSession() {
  proto::ServerFrame opened;
  opened.add_items()->mutable_opened()->set_applied_seq(0);
  proto::ClientFrame run;
  run.add_items()->set_seq(1);
  run.mutable_items(0)->mutable_run()->set_graph_id(SomeGraph().id.ToBytes());
  return std::string{kConnect, 0, 0, kFromExecutor, 0, 0} +
         test::BlockOf(opened.SerializeAsString()) + std::string{0, kFromClient, 0, 0} +
         test::BlockOf(run.SerializeAsString()) +
         std::string{0, kPut, 0, 0, 0, 0, kGraph, 0, 0, 0, 0, 0, 0, 0};
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  return test::StartWireFuzzer(*argc, *argv, {HonestSession()});
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Session(test::ByteSource(data, size)).Play();
  return 0;
}
