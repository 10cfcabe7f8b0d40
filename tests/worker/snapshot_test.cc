// E8 and E9 of executor_core.cc, E7 of session_state.cc: a session that begins with a snapshot and
// is sent the items behind it gives the answers, and comes to the state, of the one that was never
// disturbed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "tests/support/device.h"
#include "tests/support/memory_store.h"
#include "worker/compile/in_process_compiler.h"
#include "worker/engine/compiled_engine.h"
#include "worker/executor/executor_core.h"

namespace outboard::worker {
namespace {

using proto::ClientItem;

constexpr int64_t kMemory = int64_t{1} << 24;
constexpr uint32_t kSnapshotMs = 1000;

// The reference engine, with versions of kernels that show in the bits, a better one known every
// few Runs, and memory that is spoilt when it is given up.
class SwitchingEngine final : public Engine {
 public:
  explicit SwitchingEngine(uint64_t seed) : Engine(test::MakeDevice(kMemory)), random_(seed) {}

  absl::StatusOr<std::vector<DeviceArrayPtr>> Execute(const GraphId& id, const UOp* sink,
                                                      std::vector<DeviceArrayPtr> inputs,
                                                      std::span<const Binding> bindings,
                                                      std::span<const int64_t> donated) override {
    const KernelId kernel(id);  // each graph is one
    if (!in_use_.contains(kernel)) Use({kernel, Some()});
    if (!pinned_ && random_() % 4 == 0) Use({kernel, Some()});
    absl::StatusOr<std::vector<DeviceArrayPtr>> results =
        reference_->Execute(id, sink, inputs, bindings);
    if (results.ok()) {
      for (const DeviceArrayPtr& result : *results) {
        std::vector<float> values = test::FloatsOf(*result);
        values[0] += static_cast<float>(in_use_[kernel].value_or("heuristic").size());
        test::SetFloats(*result, values);
      }
    }
    for (const int64_t i : donated)
      if (inputs[i].use_count() == 1) test::Spoil(*inputs[i]);
    return results;
  }
  std::vector<KernelVersion> TakeVersions() override { return std::exchange(changes_, {}); }
  void Pin(const KernelVersion& version) override {
    pinned_ = true;
    Use(version);
  }
  std::string kind() const override { return "switching"; }

 private:
  std::optional<std::string> Some() {
    const uint64_t length = random_() % 8;
    if (length == 0) return std::nullopt;
    return std::string(length, 'v');
  }
  void Use(const KernelVersion& version) {
    in_use_[version.kernel] = version.opts;
    changes_.push_back(version);
  }

  std::mt19937_64 random_;
  bool pinned_ = false;  // a replay makes no choices of its own
  std::map<KernelId, std::optional<std::string>> in_use_;
  std::vector<KernelVersion> changes_;
  std::unique_ptr<Engine> reference_ = MakeReferenceEngine(test::MakeDevice(kMemory));
};

struct EngineKind {
  const char* name;
  uint64_t seeds;
  std::unique_ptr<Engine> (*make)(uint64_t seed);
};

KernelCompiler* Compiler() {
  static InProcessCompiler compiler({.target = test::DeviceTarget()});
  return &compiler;
}

const EngineKind kEngines[] = {
    {"reference", 100, [](uint64_t) { return MakeReferenceEngine(test::MakeDevice(kMemory)); }},
    {"compiled", 12,
     [](uint64_t) { return MakeCompiledEngine(Compiler(), test::MakeDevice(kMemory), {}); }},
    {"switching", 100,
     [](uint64_t seed) -> std::unique_ptr<Engine> {
       return std::make_unique<SwitchingEngine>(seed);
     }},
};

// Items as a program makes them, with mistakes in them.
class Program {
 public:
  explicit Program(uint64_t seed, int items) : random_(seed) {
    Graph g;
    const UOp* const x = Param(g, 0, DType::kF32, {4});
    const UOp* const y = Param(g, 1, DType::kF32, {4});
    graphs_.push_back(*EncodeGraph(Sink(g, {Add(g, x, y), Mul(g, x, y)})));
    graphs_.push_back(*EncodeGraph(Sink(g, {Add(g, Mul(g, x, y), x)})));
    for (int i = 0; i < items; ++i) AddItem();
  }

  const std::vector<EncodedGraph>& graphs() const { return graphs_; }
  const std::vector<ClientItem>& items() const { return items_; }  // seq is 1 + index

 private:
  uint64_t Some() { return live_.empty() ? 1 : live_[random_() % live_.size()]; }

  void AddItem() {
    ClientItem item;
    item.set_seq(items_.size() + 1);
    const uint64_t kind = live_.size() < 3 ? 0 : random_() % 10;
    if (kind < 2) {
      proto::Put& put = *item.mutable_put();
      put.set_handle(next_handle_++);
      put.set_dtype(static_cast<uint32_t>(DType::kF32));
      put.add_dims(4);
      put.set_total_bytes(16);
      const float value = 1.0f + static_cast<float>(random_() % 16) / 64;
      const float values[4] = {value, -value, 0.5f, 1};
      put.set_data(values, sizeof(values));
      live_.push_back(put.handle());
    } else if (kind < 7) {
      const size_t which = random_() % graphs_.size();
      proto::Run& run = *item.mutable_run();
      run.set_graph_id(graphs_[which].id.ToBytes());
      run.add_inputs(Some());
      run.add_inputs(random_() % 16 == 0 ? 1'000'000 : Some());  // which does not exist
      if (random_() % 2 == 0) Donate(run, random_() % 2);
      for (size_t i = 0; i < 2 - which; ++i) {
        run.add_outputs(next_handle_++);
        live_.push_back(run.outputs(i));
        if (random_() % 3 == 0) run.add_fetch(i);
      }
    } else if (kind == 7) {
      const uint64_t handle = Some();
      item.mutable_release()->add_handles(handle);
      std::erase(live_, handle);
    } else if (kind == 8) {
      proto::Save& save = *item.mutable_save();
      save.set_name("checkpoint");
      for (const char* name : {"weight", "bias"}) {
        proto::Save::Entry& entry = *save.add_entries();
        entry.set_name(name);
        entry.set_handle(Some());
      }
    } else {
      item.mutable_fetch()->add_handles(Some());
    }
    items_.push_back(std::move(item));
  }

  void Donate(proto::Run& run, int input) {
    run.add_donate(input);
    std::erase(live_, run.inputs(input));
  }

  std::mt19937_64 random_;
  std::vector<EncodedGraph> graphs_;
  std::vector<ClientItem> items_;
  std::vector<uint64_t> live_;
  uint64_t next_handle_ = 1;
};

// What a client has learnt, by item: values' bytes and failures.
using Answers = std::map<std::pair<uint64_t, uint32_t>, std::string>;
constexpr uint32_t kFailure = 1000;  // as an index
constexpr uint32_t kSave = 1001;

// An executor with its client's knowledge of it.
class Session {
 public:
  Session(const Program& program, std::unique_ptr<Engine> engine, test::MemoryStore* store)
      : program_(program), engine_(std::move(engine)), core_(engine_.get(), {}), store_(store) {}

  void Open(uint64_t epoch, const std::string& snapshot_root = {}, uint64_t received_seq = 0,
            const std::vector<proto::KernelUse>& uses = {}) {
    epoch_ = epoch;
    proto::ClientFrame frame;
    proto::Open& open = *frame.add_items()->mutable_open();
    open.set_session_id("sixteen bytes id");
    open.set_snapshot_ms(kSnapshotMs);
    open.set_snapshot_root(snapshot_root);
    open.set_received_seq(received_seq);
    for (const proto::KernelUse& entry : uses) *open.add_kernel_uses() = entry;
    Send(std::move(frame));
    store_->Answer(core_, *engine_, [this](proto::ServerFrame answer) { Read(answer); });
    proto::ClientFrame graphs;
    for (const EncodedGraph& graph : program_.graphs()) {
      proto::Graph& item = *graphs.add_items()->mutable_graph();
      item.set_id(graph.id.ToBytes());
      item.set_total_bytes(graph.bytes.size());
      item.set_data(graph.bytes);
    }
    Send(std::move(graphs));
  }

  // Those above what is applied, up to `through`.
  void Run(uint64_t through) {
    for (uint64_t seq = core_.applied_seq() + 1; seq <= through; ++seq) {
      proto::ClientFrame frame;
      *frame.add_items() = program_.items()[seq - 1];
      Send(std::move(frame));
      StoreSaves();
    }
  }

  // When the interval is over, after the Saves before it.
  std::shared_ptr<const PersistRequest> TakeSnapshot() {
    auto request = core_.TakeStore(now_);
    if (request == nullptr) request = core_.TakeStore(now_ += kSnapshotMs);
    for (; request != nullptr && request->checkpoint; request = core_.TakeStore(now_))
      Stored(*request);
    return request;
  }
  std::string Stored(const PersistRequest& request, bool well = true) {
    const std::string root = store_->Keep(request);
    proto::Stored stored;
    stored.set_id(request.id);
    if (!well) stored.set_code(static_cast<uint32_t>(absl::StatusCode::kUnavailable));
    core_.OnStored(stored, now_, [this](proto::ServerFrame answer) { Read(answer); });
    return root;
  }

  // All that it is, as blobs: equal for equal sessions.
  std::string State() {
    StoreSaves();
    ClientItem last;
    last.set_seq(core_.applied_seq() + 1);
    last.mutable_release();
    proto::ClientFrame frame;
    frame.add_items()->mutable_ack()->set_through_seq(core_.applied_seq());
    *frame.add_items() = last;
    Send(std::move(frame));
    PersistRequest request = *TakeSnapshot();
    request.snapshot.clear_device_time_us();
    request.snapshot.clear_kernels_launched();
    request.snapshot.clear_unacknowledged();  // a Save's answer says how much was sent
    return store_->Keep(request);
  }

  const Answers& answers() const { return answers_; }
  const std::vector<proto::KernelUse>& kernel_uses() const { return uses_; }
  uint64_t durable_seq() const { return durable_seq_; }
  const std::vector<uint64_t>& opened() const { return opened_; }
  ExecutorCore& core() { return core_; }
  Engine& engine() { return *engine_; }

 private:
  // At once, unless a snapshot is under way; no other is due yet.
  void StoreSaves() {
    while (const auto request = core_.TakeStore(now_)) Stored(*request);
  }

  void Send(proto::ClientFrame frame) {
    frame.set_epoch(epoch_);
    for (const proto::ServerFrame& answer : core_.On(std::move(frame))) Read(answer);
  }

  void Read(const proto::ServerFrame& frame) {
    for (const proto::ServerItem& item : frame.items()) {
      if (item.has_opened()) opened_.push_back(item.opened().applied_seq());
      for (const proto::Value& value : item.done().values())
        answers_[{value.seq(), value.index()}] = value.data();
      for (const proto::KernelUse& entry : item.done().kernel_uses()) uses_.push_back(entry);
      durable_seq_ = std::max(durable_seq_, item.done().durable_seq());
      if (item.has_failed())
        answers_[{item.failed().seq(), kFailure}] = item.failed().SerializeAsString();
      if (item.has_saved()) answers_[{item.saved().seq(), kSave}] = "saved";
    }
  }

  const Program& program_;
  std::unique_ptr<Engine> engine_;
  ExecutorCore core_;
  test::MemoryStore* const store_;
  uint64_t epoch_ = 0;
  int64_t now_ = 0;
  Answers answers_;
  std::vector<proto::KernelUse> uses_;
  uint64_t durable_seq_ = 0;
  std::vector<uint64_t> opened_;
};

class SnapshotTest : public ::testing::TestWithParam<EngineKind> {
 protected:
  std::unique_ptr<Engine> Make(uint64_t seed) { return GetParam().make(seed); }
  test::MemoryStore store_;
};
INSTANTIATE_TEST_SUITE_P(Engines, SnapshotTest, ::testing::ValuesIn(kEngines),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(SnapshotTest, E8_AReplayBehindASnapshotIsAsIfNothingHadHappened) {
  size_t kernel_use_count = 0;
  for (uint64_t seed = 1; seed <= GetParam().seeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Program program(seed, 60);
    std::mt19937_64 random(seed);
    const uint64_t at = 1 + random() % 50, died = at + random() % (61 - at);

    Session undisturbed(program, Make(seed), &store_);
    undisturbed.Open(1);
    undisturbed.Run(at);
    const std::shared_ptr<const PersistRequest> request = undisturbed.TakeSnapshot();
    ASSERT_NE(request, nullptr);
    EXPECT_EQ(request->seq, at);
    undisturbed.Run(died);  // which must not change what the request holds
    const std::string root = undisturbed.Stored(*request);
    // The client has the kernel uses of the answers that it has seen; later ones bind nobody.
    const std::vector<proto::KernelUse> uses = undisturbed.kernel_uses();
    kernel_use_count += uses.size();

    Session restored(program, Make(seed + 1000), &store_);
    const uint64_t received = random() % (died + 1);
    restored.Open(2, root, received, uses);
    ASSERT_EQ(restored.opened(), std::vector<uint64_t>{at});
    restored.Run(died);
    for (const auto& [key, bytes] : undisturbed.answers()) {
      if (key.second == kSave || (key.first <= at && key.first <= received)) continue;
      if (key.first <= received) {
        const bool of_save = program.items()[key.first - 1].has_save();
        EXPECT_EQ(restored.answers().contains(key), of_save) << "E9: item " << key.first;
      } else {
        const auto again = restored.answers().find(key);
        ASSERT_NE(again, restored.answers().end()) << "item " << key.first;
        EXPECT_EQ(again->second, bytes) << "item " << key.first;
      }
    }
    EXPECT_EQ(restored.State(), undisturbed.State());
  }
  if (std::string_view(GetParam().name) == "switching") {
    EXPECT_GT(kernel_use_count, 0u);
  }
}

TEST_P(SnapshotTest, TakingSnapshotsChangesNoBits) {
  if (std::string_view(GetParam().name) == "switching") GTEST_SKIP() << "chooses by itself";
  const Program program(7, 80);
  Session plain(program, Make(7), &store_), with(program, Make(7), &store_);
  plain.Open(1);
  plain.Run(80);
  with.Open(1);
  std::shared_ptr<const PersistRequest> held;
  for (uint64_t seq = 1; seq <= 80; ++seq) {
    with.Run(seq);
    if (seq % 5 != 0) continue;
    if (held != nullptr) with.Stored(*std::exchange(held, nullptr));
    held = with.TakeSnapshot();
  }
  Answers answers = with.answers();
  std::erase_if(answers, [](const auto& answer) { return answer.first.second == kSave; });
  Answers expected = plain.answers();
  std::erase_if(expected, [](const auto& answer) { return answer.first.second == kSave; });
  EXPECT_EQ(answers, expected);
}

TEST(Snapshot, E8_DurableIsToldWhenItIsStoredAndAFailedStoreIsTriedAgain) {
  const Program program(3, 20);
  test::MemoryStore store;
  Session session(program, MakeReferenceEngine(test::MakeDevice(kMemory)), &store);
  session.Open(1);
  session.Run(10);
  const std::shared_ptr<const PersistRequest> first = session.TakeSnapshot();
  ASSERT_NE(first, nullptr);
  session.Run(12);
  EXPECT_EQ(session.TakeSnapshot(), nullptr) << "one is under way";
  EXPECT_EQ(session.durable_seq(), 0u);
  session.Stored(*first, /*well=*/false);
  EXPECT_EQ(session.durable_seq(), 0u);
  const std::shared_ptr<const PersistRequest> second = session.TakeSnapshot();
  ASSERT_NE(second, nullptr);
  session.Run(15);
  session.Stored(*first);  // answered already
  EXPECT_EQ(session.durable_seq(), 0u);
  session.Stored(*second);
  EXPECT_EQ(session.durable_seq(), 12u);
  session.Stored(*session.TakeSnapshot());
  EXPECT_EQ(session.durable_seq(), 15u);
  EXPECT_EQ(session.TakeSnapshot(), nullptr) << "nothing is new";
}

TEST(Snapshot, ABlobThatIsNotThereEndsTheSession) {
  const Program program(3, 20);
  test::MemoryStore store, empty;
  Session session(program, MakeReferenceEngine(test::MakeDevice(kMemory)), &store);
  session.Open(1);
  session.Run(10);
  const std::string root = session.Stored(*session.TakeSnapshot());
  Session restored(program, MakeReferenceEngine(test::MakeDevice(kMemory)), &empty);
  restored.Open(2, root);
  EXPECT_TRUE(restored.core().ended());
  EXPECT_TRUE(restored.opened().empty());
  EXPECT_TRUE(restored.answers().contains({0, kFailure}));
}

TEST(Snapshot, ARunWaitsForASnapshotThatHoldsItsMemory) {
  constexpr int64_t kFloats = 1 << 18;
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {kFloats});
  const EncodedGraph graph = *EncodeGraph(Sink(g, {Add(g, x, x)}));
  // Room for an array and the one that is made of it; not for what a snapshot holds beside.
  const std::unique_ptr<Engine> engine = MakeReferenceEngine(test::MakeDevice(9 << 18));
  std::shared_ptr<const PersistRequest> held;
  int waits = 0;
  ExecutorCore core(engine.get(), {.let_go = [&] {
                      ++waits;
                      held.reset();
                    }});
  proto::ClientFrame frame;
  frame.set_epoch(1);
  frame.add_items()->mutable_open()->set_snapshot_ms(kSnapshotMs);
  proto::Graph& known = *frame.add_items()->mutable_graph();
  known.set_id(graph.id.ToBytes());
  known.set_total_bytes(graph.bytes.size());
  known.set_data(graph.bytes);
  const std::string piece(kFloats, '\0');  // a quarter
  for (uint64_t i = 0; i < 4; ++i) {
    ClientItem& item = *frame.add_items();
    item.set_seq(1);
    proto::Put& put = *item.mutable_put();
    put.set_handle(1);
    put.set_dtype(static_cast<uint32_t>(DType::kF32));
    put.add_dims(kFloats);
    put.set_total_bytes(4 * kFloats);
    put.set_offset(i * piece.size());
    put.set_data(piece);
  }
  core.On(std::move(frame));
  core.TakeStore(0);
  held = core.TakeStore(kSnapshotMs);
  ASSERT_NE(held, nullptr);
  for (uint64_t seq = 2; seq <= 4; ++seq) {
    proto::ClientFrame next;
    next.set_epoch(1);
    ClientItem& item = *next.add_items();
    item.set_seq(seq);
    proto::Run& run = *item.mutable_run();
    run.set_graph_id(graph.id.ToBytes());
    run.add_inputs(seq - 1);
    run.add_donate(0);
    run.add_outputs(seq);
    for (const proto::ServerFrame& answer : core.On(std::move(next)))
      for (const proto::ServerItem& said : answer.items())
        EXPECT_FALSE(said.has_failed()) << said.failed().message();
  }
  EXPECT_EQ(waits, 1);
}

}  // namespace
}  // namespace outboard::worker
