// The session's meaning, frame by frame. Invariants are quoted by their numbers in
// executor_core.cc and session_state.cc.
#include "worker/executor/executor_core.h"

#include <cstring>
#include <string>
#include <vector>

#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "gtest/gtest.h"
#include "tests/support/device.h"
#include "wire/limits.h"

namespace outboard::worker {
namespace {

using proto::ClientItem;
using proto::ServerItem;
using Handles = std::vector<uint64_t>;

std::string Floats(const std::vector<float>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

// results: x + y, x * y of two f32[4].
EncodedGraph SumAndProduct() {
  Graph g;
  const UOp* const x = Param(g, 0, DType::kF32, {4});
  const UOp* const y = Param(g, 1, DType::kF32, {4});
  return *EncodeGraph(Sink(g, {Add(g, x, y), Mul(g, x, y)}));
}

// The reference engine, which spoils what it may write over: donated inputs that nobody else holds.
class SpoilingEngine final : public Engine {
 public:
  SpoilingEngine() : Engine(test::MakeDevice(1 << 20)) {}

  absl::StatusOr<std::vector<DeviceArrayPtr>> Execute(const GraphId& id, const UOp* sink,
                                                      std::vector<DeviceArrayPtr> inputs,
                                                      std::span<const Binding> bindings,
                                                      std::span<const int64_t> donated) override {
    auto results = reference_->Execute(id, sink, inputs, bindings);
    for (const int64_t i : donated) {
      if (inputs[i].use_count() != 1) continue;
      test::Spoil(*inputs[i]);
      ++spoiled;
    }
    return results;
  }
  std::string kind() const override { return "ref"; }
  int spoiled = 0;

 private:
  std::unique_ptr<Engine> reference_ = MakeReferenceEngine(test::MakeDevice(1 << 20));
};

// One client of one core, on the reference engine.
class ExecutorCoreTest : public ::testing::Test {
 protected:
  ExecutorCoreTest() { Open(1); }

  std::vector<ServerItem> Send(std::vector<ClientItem> items) {
    return Send(epoch_, std::move(items));
  }
  std::vector<ServerItem> Send(uint64_t epoch, std::vector<ClientItem> items) {
    proto::ClientFrame frame;
    frame.set_epoch(epoch);
    for (ClientItem& item : items) *frame.add_items() = std::move(item);
    std::vector<ServerItem> out;
    for (const proto::ServerFrame& answer : core_->On(std::move(frame))) {
      EXPECT_LE(answer.ByteSizeLong(), wire::kFrameBytesMax);
      out.insert(out.end(), answer.items().begin(), answer.items().end());
    }
    return out;
  }

  std::vector<ServerItem> Open(uint64_t epoch, uint64_t received_seq = 0) {
    epoch_ = epoch;
    ClientItem item;
    item.mutable_open()->set_session_id("sixteen bytes id");
    item.mutable_open()->set_received_seq(received_seq);
    return Send({item});
  }

  static ClientItem Graph(const EncodedGraph& graph, std::string id = {}) {
    ClientItem item;
    item.mutable_graph()->set_id(id.empty() ? graph.id.ToBytes() : id);
    item.mutable_graph()->set_total_bytes(graph.bytes.size());
    item.mutable_graph()->set_data(graph.bytes);
    return item;
  }

  static ClientItem PutPiece(uint64_t seq, uint64_t handle, uint64_t count, uint64_t offset,
                             std::string data) {
    ClientItem item;
    item.set_seq(seq);
    proto::Put& put = *item.mutable_put();
    put.set_handle(handle);
    put.set_dtype(static_cast<uint32_t>(DType::kF32));
    put.add_dims(count);
    put.set_total_bytes(4 * count);
    put.set_offset(offset);
    put.set_data(std::move(data));
    return item;
  }
  static ClientItem Put(uint64_t seq, uint64_t handle, const std::vector<float>& values) {
    return PutPiece(seq, handle, values.size(), 0, Floats(values));
  }

  static ClientItem Run(uint64_t seq, const EncodedGraph& graph, const Handles& inputs,
                        const Handles& outputs, const std::vector<uint32_t>& fetch = {},
                        const std::vector<uint32_t>& donate = {}) {
    ClientItem item;
    item.set_seq(seq);
    proto::Run& run = *item.mutable_run();
    run.set_graph_id(graph.id.ToBytes());
    for (uint64_t handle : inputs) run.add_inputs(handle);
    for (uint64_t handle : outputs) run.add_outputs(handle);
    for (uint32_t i : fetch) run.add_fetch(i);
    for (uint32_t i : donate) run.add_donate(i);
    return item;
  }

  static ClientItem Fetch(uint64_t seq, const Handles& handles) {
    ClientItem item;
    item.set_seq(seq);
    for (uint64_t handle : handles) item.mutable_fetch()->add_handles(handle);
    return item;
  }
  static ClientItem Release(uint64_t seq, const Handles& handles) {
    ClientItem item;
    item.set_seq(seq);
    for (uint64_t handle : handles) item.mutable_release()->add_handles(handle);
    return item;
  }
  static ClientItem Ack(uint64_t through_seq) {
    ClientItem item;
    item.mutable_ack()->set_through_seq(through_seq);
    return item;
  }

  // A graph, and x, y in handles 1, 2: seq 1 and 2 are used.
  void SetUpInputs() { Send({Graph(graph_), Put(1, 1, {1, 2, 3, 4}), Put(2, 2, {5, 6, 7, 8})}); }

  static std::vector<proto::Failed> Failures(const std::vector<ServerItem>& items) {
    std::vector<proto::Failed> out;
    for (const ServerItem& item : items)
      if (item.has_failed()) out.push_back(item.failed());
    return out;
  }
  static absl::StatusCode OnlyFailure(const std::vector<ServerItem>& items, uint64_t seq) {
    const std::vector<proto::Failed> failures = Failures(items);
    EXPECT_EQ(failures.size(), 1u);
    if (failures.size() != 1) return absl::StatusCode::kUnknown;
    EXPECT_EQ(failures[0].seq(), seq);
    EXPECT_FALSE(failures[0].message().empty());
    return static_cast<absl::StatusCode>(failures[0].code());
  }
  static std::vector<proto::Value> Values(const std::vector<ServerItem>& items) {
    std::vector<proto::Value> out;
    for (const ServerItem& item : items)
      out.insert(out.end(), item.done().values().begin(), item.done().values().end());
    return out;
  }
  static uint64_t Through(const std::vector<ServerItem>& items) {
    uint64_t through = 0;
    for (const ServerItem& item : items)
      if (item.has_done()) through = item.done().through_seq();
    return through;
  }

  const EncodedGraph graph_ = SumAndProduct();
  std::unique_ptr<Engine> engine_ = MakeReferenceEngine(test::MakeDevice(1 << 26));
  std::unique_ptr<ExecutorCore> core_ =
      std::make_unique<ExecutorCore>(engine_.get(), ExecutorOptions{"name", "class"});
  uint64_t epoch_ = 1;
};

TEST_F(ExecutorCoreTest, RunsAndSendsOnlyWhatIsFetched) {
  SetUpInputs();
  const auto items = Send({Run(3, graph_, {1, 2}, {3, 4}, {1}), Release(4, {1, 2})});
  EXPECT_TRUE(Failures(items).empty());
  EXPECT_EQ(Through(items), 4u);
  const auto values = Values(items);
  ASSERT_EQ(values.size(), 1u);
  EXPECT_EQ(values[0].seq(), 3u);
  EXPECT_EQ(values[0].index(), 1u);
  EXPECT_EQ(values[0].handle(), 4u);
  EXPECT_EQ(values[0].data(), Floats({5, 12, 21, 32}));
  const auto fetched = Values(Send({Fetch(5, {4, 3})}));
  ASSERT_EQ(fetched.size(), 2u);
  EXPECT_EQ(fetched[1].data(), Floats({6, 8, 10, 12}));
}

TEST_F(ExecutorCoreTest, E1_DuplicatesAreSkipped) {
  SetUpInputs();
  Send({Run(3, graph_, {1, 2}, {3, 4})});
  const auto again = Send({Put(1, 1, {9, 9, 9, 9}), Run(3, graph_, {1, 2}, {3, 4}, {0})});
  EXPECT_TRUE(Failures(again).empty());
  EXPECT_TRUE(Values(again).empty());
  EXPECT_EQ(core_->applied_seq(), 3u);
  EXPECT_EQ(Values(Send({Fetch(4, {1})}))[0].data(), Floats({1, 2, 3, 4}));
}

TEST_F(ExecutorCoreTest, E1_GapEndsTheSessionAndNamesBothNumbers) {
  const auto items = Send({Put(1, 1, {1}), Put(7, 2, {1})});
  EXPECT_EQ(OnlyFailure(items, 0), absl::StatusCode::kFailedPrecondition);
  const std::string message = Failures(items)[0].message();
  EXPECT_NE(message.find("7"), std::string::npos);
  EXPECT_NE(message.find("2"), std::string::npos);
  EXPECT_TRUE(core_->ended());
}

TEST_F(ExecutorCoreTest, E2_FirstCauseReachesWhatDepends) {
  Send({Graph(graph_), Put(1, 1, {1, 2, 3, 4}), Put(2, 2, {1, 2, 3})});  // 2 has the wrong shape
  EXPECT_EQ(OnlyFailure(Send({Run(3, graph_, {1, 2}, {3, 4})}), 3),
            absl::StatusCode::kInvalidArgument);
  const auto dependent = Send({Run(4, graph_, {1, 3}, {5, 6}, {0})});
  EXPECT_EQ(OnlyFailure(dependent, 4), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Failures(dependent)[0].cause_seq(), 3u);
  EXPECT_EQ(Failures(dependent)[0].handles_size(), 2);
  EXPECT_EQ(Failures(Send({Fetch(5, {6})}))[0].cause_seq(), 3u);
  EXPECT_TRUE(Failures(Send({Release(6, {3, 4, 5, 6}), Run(7, graph_, {1, 1}, {7, 8})})).empty());
}

// One that is known to end its process fails untried, as any other failure.
TEST_F(ExecutorCoreTest, E2_ARefusedRunFailsAndTheSessionGoesOn) {
  SetUpInputs();
  core_->Refuse(3, absl::DeadlineExceededError("kernel k was not done"));
  const auto items = Send({Run(3, graph_, {1, 2}, {3, 4}), Run(4, graph_, {1, 2}, {5, 6}, {0})});
  EXPECT_EQ(OnlyFailure(items, 3), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Failures(items)[0].message(), "kernel k was not done");
  ASSERT_EQ(Values(items).size(), 1u);
  EXPECT_EQ(Values(items)[0].data(), Floats({6, 8, 10, 12}));
  EXPECT_EQ(core_->begun_seq(), 4u);
  EXPECT_EQ(core_->lost_seq(), 0u);
}

TEST_F(ExecutorCoreTest, E2_E3_DonatedHandlesEndEvenIfTheRunFails) {
  SetUpInputs();
  EXPECT_TRUE(Failures(Send({Run(3, graph_, {1, 2}, {3, 4}, {}, {0})})).empty());
  EXPECT_EQ(OnlyFailure(Send({Fetch(4, {1})}), 4), absl::StatusCode::kNotFound);
  EXPECT_EQ(OnlyFailure(Send({Run(5, graph_, {99, 2}, {5, 6}, {}, {1})}), 5),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(OnlyFailure(Send({Fetch(6, {2})}), 6), absl::StatusCode::kNotFound);
}

// A value that is kept for sending it again is nobody's to write over, and an input that another
// one of the same Run is, neither.
TEST_F(ExecutorCoreTest, E3_E4_OnlyWhatNobodyElseHoldsIsGivenUp) {
  auto engine = std::make_unique<SpoilingEngine>();
  const int& spoiled = engine->spoiled;
  core_ = std::make_unique<ExecutorCore>(engine.get(), ExecutorOptions{"name", "class"});
  engine_ = std::move(engine);
  Open(1);
  SetUpInputs();
  Send({Run(3, graph_, {1, 2}, {3, 4}, {0}), Run(4, graph_, {3, 4}, {5, 6}, {}, {0, 1})});
  EXPECT_EQ(spoiled, 1) << "4, but not 3, which is on its way to the client";
  EXPECT_EQ(Values(Open(2, /*received_seq=*/2))[0].data(), Floats({6, 8, 10, 12}));
  Send({Ack(4), Run(5, graph_, {5, 5}, {7, 8}, {}, {0})});
  EXPECT_EQ(spoiled, 1) << "5 stands for two inputs";
  Send({Run(6, graph_, {7, 1}, {9, 10}, {}, {0, 0})});
  EXPECT_EQ(spoiled, 2);
  EXPECT_EQ(Values(Send({Fetch(7, {1})}))[0].data(), Floats({1, 2, 3, 4}));
}

TEST_F(ExecutorCoreTest, E4_ValuesAndFailuresAreSentAgainUntilAcknowledged) {
  SetUpInputs();
  Send({Run(3, graph_, {1, 2}, {3, 4}, {0}), Fetch(4, {99}), Fetch(5, {4})});
  const auto resumed = Open(2, /*received_seq=*/3);
  ASSERT_TRUE(resumed[0].has_opened());
  EXPECT_EQ(resumed[0].opened().applied_seq(), 5u);
  EXPECT_EQ(Failures(resumed).size(), 1u);
  ASSERT_EQ(Values(resumed).size(), 1u);
  EXPECT_EQ(Values(resumed)[0].seq(), 5u);
  Send({Ack(5)});
  EXPECT_TRUE(Values(Open(3)).empty());
}

TEST_F(ExecutorCoreTest, E5_NothingPassesAMissingGraph) {
  Send({Put(1, 1, {1, 2, 3, 4})});
  const auto need = Send(
      {Run(2, graph_, {1, 1}, {2, 3}, {0}), Put(3, 4, {1}), Run(4, graph_, {2, 2}, {5, 6}, {0})});
  ASSERT_EQ(need.size(), 1u);
  ASSERT_TRUE(need[0].has_need());
  EXPECT_EQ(need[0].need().graph_ids(0), graph_.id.ToBytes());
  EXPECT_EQ(core_->applied_seq(), 1u);
  const auto items = Send({Graph(graph_)});
  EXPECT_EQ(Through(items), 4u);
  ASSERT_EQ(Values(items).size(), 2u);
  EXPECT_EQ(Values(items)[1].data(), Floats({4, 8, 12, 16}));
}

TEST_F(ExecutorCoreTest, E6_FramesOfAnotherEpochAreDropped) {
  Open(2);
  EXPECT_TRUE(Send(1, {Put(1, 1, {1})}).empty());
  EXPECT_TRUE(Send(3, {Put(1, 1, {1})}).empty());
  EXPECT_EQ(core_->applied_seq(), 0u);
  ClientItem open;
  open.mutable_open();
  EXPECT_TRUE(Send(1, {open}).empty());  // an old stream's Open does not take the session back
  EXPECT_EQ(Through(Send(2, {Put(1, 1, {1})})), 1u);
}

TEST_F(ExecutorCoreTest, PutInPiecesAndAfterReconnectionFromTheFirst) {
  Send({PutPiece(1, 1, 4, 0, Floats({1, 2}))});
  EXPECT_EQ(core_->applied_seq(), 0u);
  Open(2);
  Send({PutPiece(1, 1, 4, 0, Floats({5, 6})), PutPiece(1, 1, 4, 8, Floats({7, 8}))});
  EXPECT_EQ(Values(Send({Fetch(2, {1})}))[0].data(), Floats({5, 6, 7, 8}));
}

TEST_F(ExecutorCoreTest, PutsOfNothingAndOfScalars) {
  ClientItem scalar = PutPiece(1, 1, 1, 0, Floats({3}));
  scalar.mutable_put()->clear_dims();
  EXPECT_EQ(Through(Send({scalar, PutPiece(2, 2, 0, 0, "")})), 2u);
  const auto values = Values(Send({Fetch(3, {1, 2})}));
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(values[0].dims_size(), 0);
  EXPECT_EQ(values[1].total_bytes(), 0u);
}

TEST_F(ExecutorCoreTest, LargeValuesComeInPieces) {
  const uint64_t count = 600'000;
  std::string bytes(4 * count, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  for (uint64_t at = 0; at < bytes.size(); at += wire::kPieceBytesMax)
    Send({PutPiece(1, 1, count, at, bytes.substr(at, wire::kPieceBytesMax))});
  std::string back;
  for (const proto::Value& value : Values(Send({Fetch(2, {1})}))) {
    EXPECT_EQ(value.offset(), back.size());
    EXPECT_EQ(value.total_bytes(), bytes.size());
    back += value.data();
  }
  EXPECT_EQ(back, bytes);
}

// However much is asked for at once: what waits to be acknowledged shares the arrays' memory, and
// no more than a frame is made before it is sent.
TEST_F(ExecutorCoreTest, ValuesNeedNoMemoryBesideTheirOwn) {
  const uint64_t count = 600'000;
  const std::string bytes(4 * count, 'v');
  for (uint64_t at = 0; at < bytes.size(); at += wire::kPieceBytesMax)
    Send({PutPiece(1, 1, count, at, bytes.substr(at, wire::kPieceBytesMax))});
  const int64_t in_use = engine_->memory_bytes_max();
  uint64_t sent = 0;
  const ExecutorCore::SendFrame count_bytes = [&](const proto::ServerFrame& frame) {
    EXPECT_LE(frame.ByteSizeLong(), wire::kFrameBytesMax);
    for (const ServerItem& item : frame.items())
      for (const proto::Value& value : item.done().values()) sent += value.data().size();
  };
  proto::ClientFrame frame;
  frame.set_epoch(epoch_);
  for (uint64_t seq = 2; seq < 202; ++seq) *frame.add_items() = Fetch(seq, {1});
  core_->On(frame, count_bytes);
  EXPECT_EQ(sent, 200 * bytes.size());
  sent = 0;
  frame.Clear();
  frame.set_epoch(2);
  frame.add_items()->mutable_open()->set_received_seq(101);
  core_->On(frame, count_bytes);
  EXPECT_EQ(sent, 100 * bytes.size());
  EXPECT_EQ(engine_->memory_bytes_max(), in_use);
}

TEST_F(ExecutorCoreTest, FailuresThatNobodyAcknowledgesEndTheSession) {
  std::vector<ServerItem> answers;
  Handles many(60'000);
  for (uint64_t seq = 1; !core_->ended(); ++seq) {
    ASSERT_LT(seq, 1000u);
    ClientItem run = Run(seq, graph_, {99, 98}, {});
    for (size_t i = 0; i < many.size(); ++i) run.mutable_run()->add_outputs(1000 + i);
    answers =
        Send(seq == 1 ? std::vector<ClientItem>{Graph(graph_), run} : std::vector<ClientItem>{run});
  }
  ASSERT_FALSE(Failures(answers).empty());
  EXPECT_EQ(Failures(answers).back().seq(), 0u);
  EXPECT_EQ(Failures(answers).back().code(),
            static_cast<uint32_t>(absl::StatusCode::kResourceExhausted));
}

TEST_F(ExecutorCoreTest, TheMemoryOfTheSessionIsWhatOpenSays) {
  engine_ = MakeReferenceEngine(test::MakeDevice(1 << 26));
  core_ = std::make_unique<ExecutorCore>(engine_.get(), ExecutorOptions{"name", "class"});
  ClientItem open;
  open.mutable_open()->set_memory_bytes_max(1 << 16);
  const auto opened = Send({open});
  EXPECT_EQ(opened[0].opened().device().memory_bytes(), 1u << 16);
  const std::vector<float> floats(20'000);
  const auto answers = Send({Put(1, 1, floats)});
  EXPECT_EQ(OnlyFailure(answers, 1), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(Failures(answers)[0].message().find("80000"), std::string::npos);
  EXPECT_NE(Failures(answers)[0].message().find("65536"), std::string::npos);
  open.mutable_open()->set_memory_bytes_max(1 << 30);  // never more again
  EXPECT_EQ(Send(2, {open})[0].opened().device().memory_bytes(), 1u << 16);
}

TEST_F(ExecutorCoreTest, GraphsThatCannotBeRun) {
  ClientItem before;  // other bytes than those that come with the inputs
  before.mutable_graph()->set_id(graph_.id.ToBytes());
  before.mutable_graph()->set_refused_code(static_cast<uint32_t>(absl::StatusCode::kDataLoss));
  Send({before});
  SetUpInputs();
  EncodedGraph damaged = graph_;
  damaged.bytes[0] ^= 1;
  damaged.id = IdOfEncoding(damaged.bytes);
  EXPECT_EQ(OnlyFailure(Send({Graph(damaged), Run(3, damaged, {1, 2}, {3, 4})}), 3),
            absl::StatusCode::kInvalidArgument);
  EncodedGraph lying = graph_;
  lying.id.bytes.fill(7);
  EXPECT_EQ(OnlyFailure(Send({Graph(lying), Run(4, lying, {1, 2}, {5, 6})}), 4),
            absl::StatusCode::kInvalidArgument);
  EncodedGraph refused = graph_;
  refused.id.bytes.fill(8);
  ClientItem item;
  item.mutable_graph()->set_id(refused.id.ToBytes());
  item.mutable_graph()->set_refused_code(static_cast<uint32_t>(absl::StatusCode::kUnimplemented));
  item.mutable_graph()->set_refused("the gateway's words");
  const auto items = Send({item, Run(5, refused, {1, 2}, {7, 8})});
  EXPECT_EQ(OnlyFailure(items, 5), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(Failures(items)[0].message(), "the gateway's words");
  EXPECT_TRUE(Failures(Send({Run(6, graph_, {1, 2}, {9, 10})})).empty());
  EXPECT_FALSE(core_->ended());
}

// One bad item each, after SetUpInputs: its own failure, and the session goes on.
TEST_F(ExecutorCoreTest, ErrorsOfItems) {
  const auto changed = [](ClientItem item, auto change) {
    change(item);
    return item;
  };
  const ClientItem run = Run(3, graph_, {1, 2}, {3, 4}), put = Put(3, 9, {1});
  struct Case {
    const char* what;
    ClientItem item;
    absl::StatusCode code;
  };
  using enum absl::StatusCode;
  const std::vector<Case> cases = {
      {"unknown input", Run(3, graph_, {1, 77}, {3, 4}), kNotFound},
      {"output in use", Run(3, graph_, {1, 2}, {3, 1}), kInvalidArgument},
      {"output 0", Run(3, graph_, {1, 2}, {3, 0}), kInvalidArgument},
      {"one handle for two outputs", Run(3, graph_, {1, 2}, {3, 3}), kInvalidArgument},
      {"too few inputs", Run(3, graph_, {1}, {3, 4}), kInvalidArgument},
      {"too many inputs", Run(3, graph_, {1, 2, 2}, {3, 4}), kInvalidArgument},
      {"too few outputs", Run(3, graph_, {1, 2}, {3}), kInvalidArgument},
      {"fetch out of range", Run(3, graph_, {1, 2}, {3, 4}, {2}), kInvalidArgument},
      {"donate out of range", Run(3, graph_, {1, 2}, {3, 4}, {}, {2}), kInvalidArgument},
      {"device 1", changed(run, [](ClientItem& i) { i.mutable_run()->add_devices(1); }),
       kUnimplemented},
      {"fetch of nothing", Fetch(3, {77}), kNotFound},
      {"put to a used handle", Put(3, 1, {1}), kInvalidArgument},
      {"put to handle 0", Put(3, 0, {1}), kInvalidArgument},
      {"dtype 0", changed(put, [](ClientItem& i) { i.mutable_put()->set_dtype(0); }),
       kInvalidArgument},
      {"dtype 99", changed(put, [](ClientItem& i) { i.mutable_put()->set_dtype(99); }),
       kInvalidArgument},
      {"dims of other size", changed(put, [](ClientItem& i) { i.mutable_put()->set_dims(0, 2); }),
       kInvalidArgument},
      {"dims overflow",
       changed(put, [](ClientItem& i) { i.mutable_put()->set_dims(0, uint64_t{1} << 62); }),
       kResourceExhausted},
      {"dim negative",
       changed(put, [](ClientItem& i) { i.mutable_put()->set_dims(0, ~uint64_t{0}); }),
       kResourceExhausted},
      {"over memory",
       changed(put, [](ClientItem& i) { i.mutable_put()->set_dims(0, uint64_t{1} << 40); }),
       kResourceExhausted},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    core_ = std::make_unique<ExecutorCore>(engine_.get(), ExecutorOptions{});
    Open(1);
    SetUpInputs();
    EXPECT_EQ(OnlyFailure(Send({test.item}), 3), test.code);
    EXPECT_FALSE(core_->ended());
    EXPECT_EQ(Values(Send({Run(4, graph_, {1, 2}, {100, 101}, {0})})).size(), 1u);
  }
}

// Malformed sequences: the session ends.
TEST_F(ExecutorCoreTest, ErrorsOfTheSession) {
  struct Case {
    const char* what;
    std::vector<ClientItem> items;
    absl::StatusCode code;
  };
  ClientItem grown = PutPiece(1, 1, 4, 4, std::string(1000, 'x')), shrunk = grown;
  grown.mutable_put()->set_total_bytes(1 << 20);
  shrunk.mutable_put()->set_total_bytes(1);
  ClientItem huge = Graph(graph_);
  huge.mutable_graph()->set_total_bytes(uint64_t{1} << 40);
  ClientItem later = Graph(graph_);
  later.mutable_graph()->set_offset(8);
  ClientItem long_id = Run(1, graph_, {}, {});
  long_id.mutable_run()->set_graph_id(std::string(1 << 19, 'x'));
  ClientItem flat = PutPiece(1, 1, 0, 0, "");
  for (int i = 0; i < 16; ++i) flat.mutable_put()->add_dims(1);
  ClientItem long_name;
  long_name.set_seq(1);
  long_name.mutable_save()->add_entries()->set_name(std::string(256, 'x'));
  const Handles many(wire::kRunHandlesMax + 1, 5);
  using enum absl::StatusCode;
  const std::vector<Case> cases = {
      {"item of no kind", {ClientItem()}, kInvalidArgument},
      {"a later piece makes the Put larger",
       {PutPiece(1, 1, 4, 0, Floats({1})), grown},
       kInvalidArgument},
      {"a later piece makes the Put smaller",
       {PutPiece(1, 1, 4, 0, Floats({1})), shrunk},
       kInvalidArgument},
      {"piece beyond the end", {PutPiece(1, 1, 1, 0, Floats({1, 2}))}, kInvalidArgument},
      {"piece left out",
       {PutPiece(1, 1, 4, 0, Floats({1})), PutPiece(1, 1, 4, 8, Floats({1}))},
       kInvalidArgument},
      {"another item between pieces",
       {PutPiece(1, 1, 4, 0, Floats({1})), Release(1, {5})},
       kInvalidArgument},
      {"graph over the limit", {huge}, kResourceExhausted},
      {"graph from its middle", {later}, kInvalidArgument},
      {"graph of a short id", {Graph(graph_, "id")}, kInvalidArgument},
      {"run of a long id", {long_id}, kInvalidArgument},
      {"run of too many handles", {Run(1, graph_, {}, many)}, kResourceExhausted},
      {"fetch of too many handles", {Fetch(1, many)}, kResourceExhausted},
      {"release of too many handles", {Release(1, many)}, kResourceExhausted},
      {"save of a long name", {long_name}, kInvalidArgument},
      {"rank 17", {flat}, kResourceExhausted},
  };
  for (const Case& test : cases) {
    SCOPED_TRACE(test.what);
    core_ = std::make_unique<ExecutorCore>(engine_.get(), ExecutorOptions{});
    Open(1);
    EXPECT_EQ(OnlyFailure(Send(test.items), 0), test.code);
    EXPECT_TRUE(core_->ended());
    EXPECT_TRUE(Send({Put(1, 50, {1})}).empty());
  }
  core_ = std::make_unique<ExecutorCore>(engine_.get(), ExecutorOptions{});
  EXPECT_EQ(OnlyFailure(Send({Put(1, 1, {1})}), 0), kFailedPrecondition);  // no Open
}

TEST_F(ExecutorCoreTest, MoreThanTheCreditEndsTheSession) {
  std::vector<ServerItem> items = Send({Run(1, graph_, {1, 1}, {2, 3})});
  for (uint64_t seq = 2; !core_->ended() && seq < 100'000; ++seq)
    items = Send({Put(seq, seq + 10, {1})});
  EXPECT_EQ(OnlyFailure(items, 0), absl::StatusCode::kResourceExhausted);
}

// However much of it was left to do.
TEST_F(ExecutorCoreTest, APlanThatCannotBeReadIsTheLastWord) {
  ExecutorCore core(engine_.get(), {});
  proto::ClientFrame frame;
  frame.set_epoch(1);
  frame.add_items()->mutable_open()->add_kernel_uses()->set_kernel("no hash");
  const std::vector<proto::ServerFrame> answers = core.On(std::move(frame));
  ASSERT_EQ(answers.size(), 1u);
  ASSERT_EQ(answers[0].items_size(), 1);
  EXPECT_EQ(answers[0].items(0).failed().seq(), 0u);
  EXPECT_EQ(answers[0].items(0).failed().code(),
            static_cast<uint32_t>(absl::StatusCode::kInvalidArgument));
  EXPECT_TRUE(core.ended());
}

TEST_F(ExecutorCoreTest, ASessionEndsOnce) {
  SetUpInputs();
  const std::vector<uint32_t> often(kUnacknowledgedMax + 1, 0);
  const std::vector<ServerItem> items = Send({Run(3, graph_, {1, 2}, {3, 4}, often)});
  EXPECT_EQ(OnlyFailure(items, 0), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(items.back().has_failed());
}

TEST_F(ExecutorCoreTest, TooManyGraphsEndTheSession) {
  std::vector<ServerItem> items;
  int graphs = 0;
  for (; !core_->ended() && graphs < 10'000; ++graphs) {
    std::string id(32, '\0');
    std::memcpy(id.data(), &graphs, sizeof(graphs));
    items = Send({Graph(graph_, id)});
  }
  EXPECT_GE(graphs, 1000);
  EXPECT_EQ(OnlyFailure(items, 0), absl::StatusCode::kResourceExhausted);
}

TEST_F(ExecutorCoreTest, CloseAnswersWithTheLastDone) {
  SetUpInputs();
  ClientItem close;
  close.mutable_close();
  const auto items = Send({Run(3, graph_, {1, 2}, {3, 4}), close});
  EXPECT_EQ(Through(items), 3u);
  EXPECT_TRUE(core_->ended());
  EXPECT_TRUE(Send({Put(4, 9, {1})}).empty());
}

}  // namespace
}  // namespace outboard::worker
