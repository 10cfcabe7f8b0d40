// A client's frames in the executor's core, on the reference engine. The first byte chooses between
// frames off the wire (blocks, parsed as ClientFrame) and items made of small numbers, which get
// further. Whatever comes: answers keep the wire's limits and epochs, values arrive whole and in
// order, and nothing follows the end.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "tests/fuzz/byte_source.h"
#include "tests/fuzz/wire_seeds.h"
#include "tests/support/device.h"
#include "wire/limits.h"
#include "worker/executor/executor_core.h"

using namespace outboard;
using namespace outboard::worker;

namespace {

constexpr int64_t kMemoryBytes = 1 << 20;

// x + y and x * y; twice x, of symbolic length; a result over the limit of a frame; more than the
// memory; no graph.
const std::vector<std::pair<std::string, std::string>>& Graphs() {  // id, bytes
  static const auto* const graphs = [] {
    auto* const out = new std::vector<std::pair<std::string, std::string>>;
    const auto add = [out](const UOp* sink) {
      const EncodedGraph encoded = ValueOrDie(EncodeGraph(sink));
      out->emplace_back(encoded.id.ToBytes(), encoded.bytes);
    };
    Graph g;
    const UOp* const x = Param(g, 0, DType::kF32, {4});
    const UOp* const y = Param(g, 1, DType::kF32, {4});
    add(Sink(g, {Add(g, x, y), Mul(g, x, y)}));
    const UOp* const z = Param(g, 0, DType::kF32, {Dim(Var(g, 0, 0, 8))});
    add(Sink(g, {Add(g, z, z)}));
    for (const int64_t elements : {150'000, 1 << 20})
      add(Sink(g, {Expand(g, Reshape(g, Reduce(g, Op::kAdd, x, {0}), {1}), {elements})}));
    out->emplace_back(IdOfEncoding("OBG").ToBytes(), "OBG");
    return out;
  }();
  return *graphs;
}

class Client {
 public:
  Client()
      : engine_(MakeReferenceEngine(test::MakeDevice(kMemoryBytes))),
        core_(engine_.get(), {"fuzz", "fuzz"}) {}

  void SendRaw(test::ByteSource bytes) {
    while (!bytes.empty()) {
      proto::ClientFrame frame;
      const std::string_view block = bytes.Block();
      if (frame.ParseFromArray(block.data(), static_cast<int>(block.size()))) Send(frame);
    }
  }

  void SendMade(test::ByteSource bytes) {
    for (uint64_t epoch = 1; !bytes.empty();) {
      proto::ClientFrame frame;
      frame.set_epoch(epoch);
      do {
        const int kind = bytes.Below(16);
        if (kind == 0) frame.set_epoch(epoch += bytes.Below(3) - 1ull);
        MakeItem(bytes, kind, *frame.add_items());
      } while (!bytes.OneIn(4) && !bytes.empty());
      Send(frame);
    }
  }

 private:
  void MakeItem(test::ByteSource& bytes, int kind, proto::ClientItem& item) {
    if (kind <= 10) item.set_seq(bytes.OneIn(16) ? seq_ + bytes.Below(4) : ++seq_);
    switch (kind) {
      case 0:
        item.set_seq(0);
        item.mutable_open()->set_received_seq(bytes.Byte());
        return;
      case 1:
      case 2:
      case 3: return MakeRun(bytes, *item.mutable_run());
      case 4:
      case 5:
      case 6:
      case 7: return MakePut(bytes, item);
      case 8: return Handles(bytes, *item.mutable_release()->mutable_handles());
      case 9:
      case 10: return Handles(bytes, *item.mutable_fetch()->mutable_handles());
      case 11: return item.mutable_ack()->set_through_seq(bytes.Byte());
      case 12:
        if (bytes.OneIn(8)) item.mutable_close();
        return;
      default: return MakeGraph(bytes, *item.mutable_graph());
    }
  }

  template <typename Field>
  static void Handles(test::ByteSource& bytes, Field& handles) {
    for (int i = bytes.Below(4); i > 0; --i) handles.Add(bytes.Below(16));
  }

  static void MakeRun(test::ByteSource& bytes, proto::Run& run) {
    run.set_graph_id(Graphs()[bytes.Below(static_cast<int>(Graphs().size()))].first);
    Handles(bytes, *run.mutable_inputs());
    Handles(bytes, *run.mutable_outputs());
    for (int i = bytes.Below(3); i > 0; --i) run.add_fetch(bytes.Below(3));
    if (bytes.OneIn(4)) run.add_donate(bytes.Below(3));
    if (bytes.OneIn(2)) {
      run.add_bindings()->set_slot(bytes.Below(2));
      run.mutable_bindings(0)->set_value(bytes.Below(12) - 1);
    }
    if (bytes.OneIn(4)) MakeRepeat(bytes, run);
  }

  static void MakeRepeat(test::ByteSource& bytes, proto::Run& run) {
    run.set_repeat(bytes.OneIn(16) ? uint32_t{bytes.Byte()} << 21 : bytes.Below(5));
    for (int i = bytes.Below(3); i > 0; --i) {
      proto::Carry& carry = *run.add_carry();
      carry.set_output(bytes.Below(3));
      carry.set_input(bytes.Below(3));
    }
    if (bytes.OneIn(2)) run.add_stack(bytes.Below(3));
    if (!bytes.OneIn(4)) return;
    run.mutable_cursor()->set_slot(bytes.Below(2));
    run.mutable_cursor()->set_stride(bytes.Below(4) - 1);
  }

  // Mostly right: f32[4], or f32 of some length, in one piece or in two.
  void MakePut(test::ByteSource& bytes, proto::ClientItem& item) {
    proto::Put& put = *item.mutable_put();
    put.set_handle(bytes.Below(16));
    put.set_dtype(bytes.OneIn(8) ? bytes.Byte() : static_cast<uint32_t>(DType::kF32));
    uint64_t elements = 1;
    for (int rank = bytes.OneIn(8) ? bytes.Below(20) : 1; rank > 0; --rank) {
      const uint64_t dim = bytes.OneIn(4) ? bytes.Below(10) : bytes.OneIn(16) ? ~uint64_t{0} : 4;
      put.add_dims(dim);
      elements *= dim;
    }
    uint64_t size = elements < 256 ? 4 * elements : 0;
    put.set_total_bytes(bytes.OneIn(16) ? uint64_t{bytes.Byte()} << bytes.Below(48) : size);
    if (bytes.OneIn(4)) {
      put.set_offset(bytes.Byte());
      size -= std::min<uint64_t>(size, put.offset());
      item.set_seq(seq_);
    } else if (bytes.OneIn(4)) {
      size /= 2;
    }
    put.set_data(std::string(size, static_cast<char>(bytes.Byte())));
  }

  static void MakeGraph(test::ByteSource& bytes, proto::Graph& graph) {
    const auto& [id, encoding] = Graphs()[bytes.Below(static_cast<int>(Graphs().size()))];
    graph.set_id(id);
    if (bytes.OneIn(8)) {
      graph.set_refused_code(bytes.Byte());
      graph.set_refused("no");
    }
    const size_t begin = bytes.OneIn(4) ? bytes.Below(40) : 0;
    graph.set_total_bytes(bytes.OneIn(8) ? uint64_t{bytes.Byte()} << bytes.Below(32)
                                         : encoding.size());
    graph.set_offset(begin);
    if (begin < encoding.size())
      graph.set_data(encoding.substr(begin, bytes.OneIn(4) ? bytes.Below(40) : encoding.size()));
  }

  void Send(const proto::ClientFrame& frame) {
    const bool ended = core_.ended();
    const uint64_t applied_seq = core_.applied_seq();
    const std::vector<proto::ServerFrame> answers = core_.On(frame);
    OB_CHECK(!ended || answers.empty());
    OB_CHECK(core_.applied_seq() >= applied_seq);
    for (const proto::ServerFrame& answer : answers) {
      OB_CHECK(answer.ByteSizeLong() <= wire::kFrameBytesMax);
      OB_CHECK(answer.items_size() <= static_cast<int>(wire::kFrameItemsMax));
      for (const proto::ServerItem& item : answer.items()) Receive(item);
    }
    OB_CHECK(!failed_ || core_.ended());
    OB_CHECK(core_.ended() || through_seq_ == core_.applied_seq());
  }

  void Receive(const proto::ServerItem& item) {
    OB_CHECK(!failed_);  // a Failed without a seq is the last word
    if (item.has_opened()) {
      through_seq_ = item.opened().applied_seq();
      filled_.clear();  // what was not acknowledged comes again
    } else if (item.has_failed()) {
      OB_CHECK(item.failed().code() != 0);
      failed_ = item.failed().seq() == 0;
    } else if (item.has_done()) {
      OB_CHECK(item.done().through_seq() >= through_seq_ || item.done().values_size() > 0);
      through_seq_ = std::max(through_seq_, item.done().through_seq());
      for (const proto::Value& value : item.done().values()) {
        // One value may be asked for twice in a Run: it then begins again.
        uint64_t& filled = filled_[{value.seq(), value.index()}];
        if (value.offset() == 0) filled = 0;
        OB_CHECK(value.offset() == filled);
        filled += value.data().size();
        OB_CHECK(filled <= value.total_bytes());
      }
    }
  }

  std::unique_ptr<Engine> engine_;
  ExecutorCore core_;
  uint64_t seq_ = 0;  // of the last item made
  uint64_t through_seq_ = 0;
  bool failed_ = false;
  std::map<std::pair<uint64_t, uint32_t>, uint64_t> filled_;
};

// A session as a client would have it: two arrays, a graph, a Run whose results come back, and the
// end.
std::string HonestSession() {
  std::string seed(1, 0);
  proto::ClientFrame frame;
  frame.set_epoch(1);
  frame.add_items()->mutable_open()->set_session_id("sixteen bytes id");
  seed += test::BlockOf(frame.SerializeAsString());
  frame.clear_items();
  for (uint64_t handle : {1, 2}) {
    proto::ClientItem& item = *frame.add_items();
    item.set_seq(handle);
    item.mutable_put()->set_handle(handle);
    item.mutable_put()->set_dtype(static_cast<uint32_t>(DType::kF32));
    item.mutable_put()->add_dims(4);
    item.mutable_put()->set_total_bytes(16);
    item.mutable_put()->set_data("sixteen bytes !!");
  }
  const auto& [id, bytes] = Graphs().front();
  proto::Graph& graph = *frame.add_items()->mutable_graph();
  graph.set_id(id);
  graph.set_total_bytes(bytes.size());
  graph.set_data(bytes);
  seed += test::BlockOf(frame.SerializeAsString());
  frame.clear_items();
  frame.add_items()->set_seq(3);
  proto::Run& run = *frame.mutable_items(0)->mutable_run();
  run.set_graph_id(id);
  for (const uint64_t handle : {1, 2}) run.add_inputs(handle);
  for (const uint64_t handle : {3, 4}) run.add_outputs(handle);
  run.add_fetch(1);
  run.add_donate(0);
  frame.add_items()->set_seq(4);
  frame.mutable_items(1)->mutable_fetch()->add_handles(3);
  frame.add_items()->set_seq(5);
  frame.mutable_items(2)->mutable_release()->add_handles(3);
  seed += test::BlockOf(frame.SerializeAsString());
  frame.clear_items();
  frame.add_items()->mutable_ack()->set_through_seq(4);
  frame.add_items()->mutable_close();
  return seed + test::BlockOf(frame.SerializeAsString());
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  // The made one: Open, then two Puts.
  return test::StartWireFuzzer(*argc, *argv, {HonestSession(), std::string("\1\0\0\1\4\0\1", 7)});
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  test::ByteSource bytes(data, size);
  const bool raw = bytes.Byte() % 2 == 0;
  Client client;
  raw ? client.SendRaw(bytes) : client.SendMade(bytes);
  return 0;
}
