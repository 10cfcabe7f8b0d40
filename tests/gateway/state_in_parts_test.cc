// What a device of eight stores of a training with spread="fsdp": programs as users write them run
// on a session that computes nothing, and all that they send is looked at as a gateway does.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "client/examples/gpt.h"
#include "client/examples/mnist.h"
#include "client/nn/state.h"
#include "compiler/ir/op.h"
#include "gateway/groups/graph_sharder.h"
#include "gateway/groups/group_runs.h"
#include "tests/client/fake_session.h"

namespace outboard::gateway {
namespace {

// Passes what a client sends to the Runs of a group, too.
class GroupedSession : public FakeSession {
 public:
  explicit GroupedSession(shard::Spread spread)
      : runs_(TenantId{1}, shard::Mesh{{8}}, spread, &sharder_) {
    evaluate = false;
  }

  absl::Status Put(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                   std::string_view bytes) override {
    proto::Put& put = *Next()->mutable_put();
    put.set_handle(handle);
    put.set_dtype(static_cast<uint32_t>(dtype));
    for (const int64_t dim : dims) put.add_dims(static_cast<uint64_t>(dim));
    put.set_total_bytes(bytes.size());
    Pass();
    return FakeSession::Put(handle, dtype, dims, bytes);
  }
  absl::StatusOr<uint64_t> Run(const session::RunRequest& request) override {
    const std::string id(request.graph_id.begin(), request.graph_id.end());
    OB_CHECK_OK(runs_.AddGraph(id, *request.graph));
    proto::Run& run = *Next()->mutable_run();
    run.set_graph_id(id);
    run.mutable_inputs()->Assign(request.inputs.begin(), request.inputs.end());
    run.mutable_outputs()->Assign(request.outputs.begin(), request.outputs.end());
    run.mutable_donate()->Assign(request.donate.begin(), request.donate.end());
    run.mutable_fetch()->Assign(request.fetch.begin(), request.fetch.end());
    Pass();
    return FakeSession::Run(request);
  }
  absl::StatusOr<uint64_t> Fetch(std::span<const uint64_t> handles) override {
    Next()->mutable_fetch()->mutable_handles()->Assign(handles.begin(), handles.end());
    Pass();
    return FakeSession::Fetch(handles);
  }
  void Release(uint64_t handle) override {
    Next()->mutable_release()->add_handles(handle);
    Pass();
    FakeSession::Release(handle);
  }

  // That each device stores of what Runs have left: weights, moments, results.
  uint64_t StateBytes() {
    runs_.NoteSnapshot(seq_);
    const std::optional<proto::GroupState> state = runs_.TakeNoted(seq_);
    OB_CHECK(state.has_value());
    uint64_t bytes = 0;
    for (const proto::GroupArray& array : state->arrays())
      if (array.is_state()) bytes += array.bytes();
    return bytes;
  }

 private:
  proto::ClientItem* Next() {
    frame_.Clear();
    proto::ClientItem* const item = frame_.add_items();
    item->set_seq(++seq_);
    return item;
  }
  void Pass() {
    std::vector<std::shared_ptr<const WrittenGraph>> written;
    OB_CHECK(ValueOrDie(runs_.PlanFrame(/*may_write=*/true, frame_)) ==
             GroupRuns::Planned::kAll);
    runs_.Rewrite(frame_, written);
    for (const auto& graph : written) EXPECT_TRUE(graph->status.ok()) << graph->status;
    runs_.Done(seq_);
  }

  GraphSharder sharder_;
  GroupRuns runs_;
  proto::ClientFrame frame_;
  uint64_t seq_ = 0;
};

constexpr int kSteps = 3;

// Calls `training` with what it is to do behind each step; `small` is for that.
using Training = std::function<void(const std::function<void()>& after_step)>;

struct Program {
  std::string name;
  Training run;
  // Of a data set, from which each step takes rows at random: every device has all of it.
  double data_bytes = 0;
};

const examples::GptOptions kGpt = {.layers = 2, .width = 64, .context = 32};

Tensor Text() { return Tensor::randint({1000}, 0, 256).cast(DType::kU8); }

// As a program has it that gives what it computes a name: the old weights live as long as `logits`.
void TrainHoldingResults(const std::function<void()>& after_step) {
  const TrainingMode training(true);
  const Tensor text = Text();
  const examples::Gpt net(kGpt);
  optim::AdamW adam(nn::parameters(net), 1e-3);
  Tensor logits, loss;
  for (int step = 0; step < kSteps; ++step) {
    const Tensor places = Tensor::randint({8, 1}, 0, 900) + Tensor::arange(kGpt.context);
    logits = net(text[places]);
    loss = logits.sparse_categorical_crossentropy(text[places + 1]);
    adam.zero_grad();
    loss.backward();
    adam.step({loss});
    after_step();
  }
}

// Weights that come from a file are whole at first.
void TrainLoaded(const std::function<void()>& after_step) {
  const TrainingMode training(true);
  const Tensor text = Text();
  const examples::Gpt net(kGpt);
  nn::StateDict loaded;
  for (const auto& [name, weight] : nn::state_dict(net))
    loaded.emplace_back(
        name, Tensor::from<float>(std::vector<float>(weight.numel()), weight.shape()));
  nn::load_state_dict(nn::state_dict(net), loaded);
  loaded.clear();
  optim::AdamW adam(nn::parameters(net), 1e-3);
  for (int step = 0; step < kSteps; ++step) {
    Tensor loss;
    {
      const Tensor places = Tensor::randint({8, 1}, 0, 900) + Tensor::arange(kGpt.context);
      loss = net(text[places]).sparse_categorical_crossentropy(text[places + 1]);
      adam.zero_grad();
      loss.backward();
    }
    adam.step({loss});
    after_step();
  }
}

const std::vector<Program>& Trainings() {
  static const std::vector<Program> trainings = {
      {"gpt",
       [](const auto& after_step) {
         examples::GptTrainer trainer(Text(), kGpt, 8);
         for (int step = 0; step < kSteps; ++step) trainer.Step().item(), after_step();
       }},
      {"mnist",
       [](const auto& after_step) {
         const Tensor images = Tensor::zeros({64, 1, 28, 28}, DType::kU8).state_(),
                      labels = Tensor::zeros({64}, DType::kU8).state_();
         examples::MnistTrainer trainer(images, labels, 16);
         for (int step = 0; step < kSteps; ++step) trainer.Step().item(), after_step();
       },
       64 * 28 * 28 + 64},
      {"results_held", TrainHoldingResults},
      {"loaded", TrainLoaded},
  };
  return trainings;
}

// After each step.
std::vector<double> BytesAfterSteps(const Training& training, shard::Spread spread) {
  const auto session = std::make_shared<GroupedSession>(spread);
  SetSession(session);
  Tensor::manual_seed(1);
  std::vector<double> bytes;
  training([&] { bytes.push_back(static_cast<double>(session->StateBytes())); });
  SetSession(nullptr);
  return bytes;
}

TEST(StateInParts, AnEighthIsStored_FromTheFirstStepOn) {
  for (const Program& program : Trainings()) {
    const std::vector<double> parts = BytesAfterSteps(program.run, shard::Spread::kFsdp),
                              whole = BytesAfterSteps(program.run, shard::Spread::kData);
    ASSERT_EQ(parts.size(), static_cast<size_t>(kSteps)) << program.name;
    for (int step = 0; step < kSteps; ++step) {
      std::printf("%s, step %d: %.0f of %.0f bytes\n", program.name.c_str(), step, parts[step],
                  whole[step]);
      EXPECT_LE((parts[step] - program.data_bytes) / (whole[step] - program.data_bytes), 0.14)
          << program.name << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace outboard::gateway
