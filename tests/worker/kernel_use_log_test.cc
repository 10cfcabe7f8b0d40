// A kernel's version is part of a session's state (E7 of session_state.cc): with the log of a
// session to follow, the same Runs give the same bits, whatever is measured meanwhile.
#include <gtest/gtest.h>

#include <map>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "tests/support/device.h"
#include "worker/executor/executor_core.h"
#include "worker/session/kernel_use_log.h"

namespace outboard::worker {
namespace {

KernelId Kernel(int i) { return KernelId(IdOfEncoding(std::to_string(i))); }

TEST(KernelUseLog, NotesWhatIsNew) {
  KernelUseLog log;
  const KernelVersion plain{Kernel(1), std::nullopt}, empty{Kernel(1), ""},
      other{Kernel(2), "VECTOR:0:8"};
  for (const auto& [seq, version] : std::vector<KernelUseRecord>{
           {1, plain}, {1, other}, {2, plain}, {5, empty}, {7, empty}, {9, plain}})
    ASSERT_TRUE(log.Note(seq, version).ok());
  EXPECT_EQ(log.entries(),
            (std::vector<KernelUseRecord>{{1, plain}, {1, other}, {5, empty}, {9, plain}}));
}

// x + the version's length, of one kernel for each graph: bits tell which version was used.
class VersionedEngine final : public Engine {
 public:
  VersionedEngine() : Engine(test::MakeDevice(1 << 20)) {}

  absl::StatusOr<std::vector<DeviceArrayPtr>> Execute(const GraphId& id, const UOp*,
                                                      std::vector<DeviceArrayPtr> inputs,
                                                      std::span<const Binding>,
                                                      std::span<const int64_t>) override {
    const KernelId kernel(id);
    const auto [version, fresh] = versions_.try_emplace(kernel, store[kernel]);
    if (fresh) changes_.push_back({kernel, version->second});
    OB_ASSIGN_OR_RETURN(const std::shared_ptr<DeviceArray> out, NewArray(DType::kF32, {1}));
    test::SetFloats(*out, {test::FloatsOf(*inputs[0])[0] +
                           static_cast<float>(version->second.value_or("heuristic").size())});
    return std::vector<DeviceArrayPtr>{out};
  }
  std::vector<KernelVersion> TakeVersions() override { return std::exchange(changes_, {}); }
  void Pin(const KernelVersion& version) override {
    store[version.kernel] = version.opts;
    versions_.erase(version.kernel);
  }
  void UseBetterKernels(const std::function<bool()>&) override {
    for (auto& [id, version] : versions_)
      if (version != store[id]) changes_.push_back({id, version = store[id]});
  }
  std::string kind() const override { return "versioned"; }

  std::map<KernelId, std::optional<std::string>> store;  // the best versions that are known

 private:
  std::map<KernelId, std::optional<std::string>> versions_;  // in use
  std::vector<KernelVersion> changes_;
};

// A session of 12 steps x = step(x), of two graphs in turn.
class Session {
 public:
  explicit Session(std::vector<KernelUseRecord> follow = {}) : core_(&engine_, {.follow = follow}) {
    for (const int constant : {1, 2}) {
      Graph g;
      graphs_.push_back(
          *EncodeGraph(Sink(g, {Add(g, Param(g, 0, DType::kF32, {1}),
                                    Full(g, ConstFloat(g, DType::kF32, constant), {Dim(1)}))})));
    }
    proto::ClientFrame frame;
    frame.set_epoch(1);
    frame.add_items()->mutable_open()->set_session_id("sixteen bytes id");
    for (const EncodedGraph& graph : graphs_) {
      proto::Graph& item = *frame.add_items()->mutable_graph();
      item.set_id(graph.id.ToBytes());
      item.set_total_bytes(graph.bytes.size());
      item.set_data(graph.bytes);
    }
    proto::ClientItem& item = *frame.add_items();
    item.set_seq(1);
    proto::Put& put = *item.mutable_put();
    put.set_handle(1);
    put.set_dtype(static_cast<uint32_t>(DType::kF32));
    put.add_dims(1);
    put.set_total_bytes(4);
    put.set_data(std::string(4, '\0'));
    core_.On(frame);
  }

  // What each Run gives. `between` is called before the Run with that number.
  std::vector<float> Steps(const std::function<void(uint64_t seq)>& between = [](uint64_t) {}) {
    std::vector<float> values;
    for (uint64_t seq = 2; seq <= 13; ++seq) {
      between(seq);
      proto::ClientFrame frame;
      frame.set_epoch(1);
      proto::ClientItem& item = *frame.add_items();
      item.set_seq(seq);
      proto::Run& run = *item.mutable_run();
      run.set_graph_id(graphs_[seq % 2].id.ToBytes());
      run.add_inputs(seq - 1);
      run.add_outputs(seq);
      run.add_fetch(0);
      for (const proto::ServerFrame& answer : core_.On(frame))
        for (const proto::ServerItem& done : answer.items())
          for (const proto::Value& value : done.done().values())
            values.push_back(*reinterpret_cast<const float*>(value.data().data()));
    }
    EXPECT_EQ(values.size(), 12u);
    return values;
  }

  VersionedEngine& engine() { return engine_; }
  const ExecutorCore& core() const { return core_; }
  KernelId kernel(int i) const { return KernelId(graphs_[i].id); }

 private:
  VersionedEngine engine_;
  std::vector<EncodedGraph> graphs_;
  ExecutorCore core_;
};

TEST(ExecutorCore, AReplayThatFollowsThePlanLogGivesTheSameBits) {
  Session session;
  session.engine().store[session.kernel(1)] = "four";  // known before the session begins
  const std::vector<float> values = session.Steps([&](uint64_t seq) {
    if (seq == 5)
      session.engine().store[session.kernel(0)] = "a longer text";  // found, not used yet
    if (seq == 7) session.engine().UseBetterKernels([] { return false; });
    if (seq == 10) session.engine().store[session.kernel(1)] = "another";
    if (seq == 11) session.engine().UseBetterKernels([] { return false; });
  });
  EXPECT_EQ(session.core().kernel_use_log(),
            (std::vector<KernelUseRecord>{{2, {session.kernel(0), std::nullopt}},
                                          {3, {session.kernel(1), "four"}},
                                          {7, {session.kernel(0), "a longer text"}},
                                          {11, {session.kernel(1), "another"}}}));
  Session replay(session.core().kernel_use_log());
  EXPECT_EQ(replay.Steps(), values);
  EXPECT_EQ(replay.core().kernel_use_log().size(), session.core().kernel_use_log().size());

  // One that knows better, or nothing, gives others.
  Session fresh;
  EXPECT_NE(fresh.Steps(), values);
  Session knowing(session.core().kernel_use_log());
  knowing.engine().store[session.kernel(1)] = "better than all";
  EXPECT_EQ(knowing.Steps(), values);
}

}  // namespace
}  // namespace outboard::worker
