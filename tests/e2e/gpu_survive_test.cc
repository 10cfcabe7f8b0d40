// Trainings whose GPU fails in the middle, after a snapshot was taken. The session continues, and
// its losses, weights and optimiser state are bit for bit those of an undisturbed training. A
// session that continues on another GPU model tells its client that the last bits of results may
// differ. No real GPU is used: tests/gpu/driver simulates them.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/check.h"
#include "client/nn/optim.h"
#include "client/session/current_session.h"
#include "tests/e2e/gpu_cluster.h"
#include "tests/support/documented.h"
#include "tests/support/http.h"

namespace outboard {
namespace {

using absl::StatusCode;
using test::Eventually;

constexpr int kSteps = 12, kMiddle = 6;  // snapshots are waited for before step 6, and a GPU fails

// A hidden layer. Adam's moments and the number of its steps are state, too.
class TinyTraining {
 public:
  TinyTraining() {
    Tensor::manual_seed(5);
    inputs_ = Tensor::uniform({8, 12}, -1, 1).realize();
    wanted_ = Tensor::uniform({8, 4}, -1, 1).realize();
    into_ = Tensor::uniform({12, 16}, -0.5, 0.5).realize().requires_grad_();
    out_of_ = Tensor::uniform({16, 4}, -0.5, 0.5).realize().requires_grad_();
    adam_ = std::make_unique<optim::Adam>(std::vector<Tensor>{into_, out_of_}, 0.01);
  }

  float Step() {
    const TrainingMode training(true);
    const Tensor off = inputs_.matmul(into_).tanh().matmul(out_of_) - wanted_;
    const Tensor loss = (off * off).mean();
    loss.backward();
    adam_->step({loss});
    return loss.item();
  }

  // Weights, moments and the optimiser's other numbers, as bytes.
  std::vector<std::string> State() const {
    std::vector<Tensor> all = {into_, out_of_};
    for (const Tensor& tensor : adam_->state()) all.push_back(tensor);
    std::vector<std::string> bytes;
    for (const TensorFuture& value : fetch(all)) bytes.push_back(value.to_host().bytes);
    return bytes;
  }

 private:
  Tensor inputs_, wanted_, into_, out_of_;
  std::unique_ptr<optim::Adam> adam_;
};

// What an executor's process has run for a session, by the driver's notes.
struct Ran {
  size_t kernels = 0;
  std::vector<std::string> faults;  // "sticky"
};

struct Trained {
  std::vector<float> losses;
  std::vector<std::vector<std::string>> states;  // in the middle and in the end
  std::string told;                              // what the client was told, a line each
  // So far, in the order of their first kernels.
  std::vector<Ran> processes;
};

class GpuSurvive : public test::GpuCluster {
 protected:
  void TearDown() override { SetSession(nullptr); }

  // Kernels of sessions have this fault when the test says so.
  void StartUpWith(const std::string& fault, int devices = 2,
                   std::vector<std::string> variables = {}) {
    std::ofstream(left_) << '\0';
    variables.insert(variables.end(), {"OUTBOARD_FAKE_CUDA_FAULTS=" + fault + ":1",
                                       "OUTBOARD_FAKE_CUDA_FAULTS_LEFT=" + left_,
                                       "OUTBOARD_FAKE_CUDA_NOTES=" + notes_});
    StartUp(Driver(devices, variables));
  }
  // The next kernel has the fault, and the next one of the process that follows, and so on.
  void BreakKernels(int processes) {
    std::fstream file(left_, std::ios::in | std::ios::out);  // in place: the driver has mapped it
    file.put(static_cast<char>(processes));
    OB_CHECK(file.flush().good());
  }

  // In a session of its own; `before` is called before each step.
  Trained Train(const std::function<void(int step)>& before = [](int) {}) {
    Trained trained;
    session::SessionOptions options = cluster_.Options();
    options.tell = [&](const std::string& line) { trained.told += line + "\n"; };
    absl::StatusOr<std::unique_ptr<Session>> session = absl::UnknownError("");
    EXPECT_TRUE(Eventually([&] { return (session = Session::Connect(options)).ok(); }))
        << session.status();
    if (!session.ok()) return trained;
    SetSession(*std::move(session));
    try {
      TinyTraining training;
      for (int step = 0; step < kSteps; ++step) {
        before(step);
        trained.losses.push_back(training.Step());
        if (step == kMiddle) trained.states.push_back(training.State());
      }
      trained.states.push_back(training.State());
    } catch (const Error& error) {
      ADD_FAILURE() << error.what() << Log();
    }
    EXPECT_TRUE(CloseSession().ok());
    SetSession(nullptr);
    trained.processes = Processes();
    return trained;
  }
  // A GPU fails in this step, behind a snapshot that holds the last but one.
  std::function<void(int)> BreakingStep(int broken) {
    return [=, this](int step) {
      if (step == broken - 2 || step == broken - 1) AwaitSnapshot();
      if (step == broken) BreakKernels(1);
    };
  }

  // One that nothing happens to, which is computed once.
  static const Trained& Undisturbed() {
    class Alone : public GpuSurvive {
     public:
      void TestBody() override {}
      Trained Run() {
        StartUpWith("sticky", /*devices=*/1);
        return Train();
      }
    };
    static const auto* const trained = new Trained(Alone().Run());
    return *trained;
  }
  static void ExpectUndisturbed(const Trained& got) {
    const Trained& wanted = Undisturbed();
    EXPECT_EQ(got.losses, wanted.losses);
    EXPECT_EQ(wanted.losses.size(), size_t{kSteps});
    EXPECT_LT(wanted.losses.back(), wanted.losses.front());
    ASSERT_EQ(got.states.size(), 2u);
    EXPECT_TRUE(got.states[0] == wanted.states[0]) << "the state in the middle differs";
    EXPECT_TRUE(got.states[1] == wanted.states[1]) << "the state in the end differs";
    EXPECT_FALSE(wanted.states[0] == wanted.states[1]);
  }
  // Each process but the last had this fault, and none began at the beginning but the first.
  static void ExpectFaults(const std::string& fault, size_t count, const Trained& got) {
    const size_t all_kernels = Undisturbed().processes.at(0).kernels;
    ASSERT_EQ(got.processes.size(), count + 1);
    for (size_t i = 0; i <= count; ++i) {
      const Ran& ran = got.processes[i];
      EXPECT_EQ(ran.faults, std::vector<std::string>(i < count ? 1 : 0, fault));
      EXPECT_GT(ran.kernels, 1u);
      EXPECT_LT(ran.kernels, all_kernels) << "process " << i;
    }
  }
  void ExpectEnds(int count) {
    const std::string page = WorkersMetrics();
    EXPECT_TRUE(Contains(page, "outboard_executors_ended_total{how=\"device_failed\"} " +
                                   std::to_string(count)))
        << page;
  }
  void ExpectOutOfService(int count) {
    EXPECT_TRUE(Contains(Metrics(), "outboard_devices{state=\"out_of_service\"} " +
                                        std::to_string(count)))
        << Metrics();
  }

 private:
  // One more than there were: if steps came after the last one, it holds those.
  void AwaitSnapshot() {
    const int before = Snapshots();
    EXPECT_TRUE(Eventually([&] { return Snapshots() > before; })) << Log();
  }
  int Snapshots() {
    const std::string page = Metrics(), name = "\noutboard_snapshots_total ";
    const size_t at = page.find(name);
    return at == std::string::npos ? 0 : std::atoi(page.c_str() + at + name.size());
  }
  std::string Metrics() { return test::Get(cluster_.last_metrics(), "/metrics"); }
  // The worker's, which says where they are in the log that it shares with the gateway.
  std::string WorkersMetrics() {
    const std::string log = Log(), word = "event=metrics_served address=";
    std::string address = cluster_.last_metrics();
    for (size_t at = 0; address == cluster_.last_metrics();) {
      if ((at = log.find(word, at)) == std::string::npos) return "";
      at += word.size();
      address = log.substr(at, log.find('\n', at) - at);
    }
    return test::Get(address, "/metrics");
  }

  std::vector<Ran> Processes() const {
    std::map<int, size_t> places;
    std::vector<Ran> all;
    std::istringstream lines(test::ReadFile(notes_));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      int process = 0;
      std::string what, name;
      words >> process >> what >> name;
      if ((what != "kernel" && what != "fault") || name == "outboard_scrub") continue;
      const auto [it, is_new] = places.emplace(process, all.size());
      if (is_new) all.emplace_back();
      Ran& ran = all[it->second];
      if (what == "kernel")
        ++ran.kernels;
      else
        ran.faults.push_back(name);
    }
    return all;
  }

  // Where no executor behind walls reaches: this driver is used without them.
  const test::TempFolder outside_;
  const std::string left_ = outside_ / "left", notes_ = outside_ / "notes";
};

// ---- a fault in the middle ---------------------------------------------------------------------

struct Fault {
  const char* name;  // of the test
  const char* fault;
  const char* error;  // in the worker's log
};
constexpr Fault kFaults[] = {
    {"IllegalAddress", "sticky", "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {"Trap", "trap", "CUDA_ERROR_LAUNCH_FAILED"},
    {"LaunchTimeout", "timeout", "CUDA_ERROR_LAUNCH_TIMEOUT"},
    {"DeviceThatIsGone", "gone", "CUDA_ERROR_DEVICE_UNAVAILABLE"},
};

class GpuSurviveFault : public GpuSurvive, public ::testing::WithParamInterface<Fault> {};
INSTANTIATE_TEST_SUITE_P(Faults, GpuSurviveFault, ::testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(GpuSurviveFault, InTheMiddle_LeavesTheBitsOfAnUndisturbedTraining) {
  const Fault& fault = GetParam();
  StartUpWith(fault.fault);
  const Trained got = Train(BreakingStep(kMiddle));
  ExpectUndisturbed(got);
  ExpectFaults(fault.fault, 1, got);
  EXPECT_TRUE(Contains(Log(), "event=device_failed") && Contains(Log(), fault.error)) << Log();
  ExpectEnds(1);
  ExpectOutOfService(0);
  test::ExpectAsDocumented("A worker or an executor is lost, and the gateway takes snapshots",
                           got.told);
  test::ExpectAsDocumented(
      "A GPU fails (`CUDA_ERROR_ECC_UNCORRECTABLE`, `CUDA_ERROR_ILLEGAL_ADDRESS` ...)", got.told);
  EXPECT_FALSE(Contains(got.told, "another kind of device")) << got.told;
}

// First one GPU, and later the one that the session has gone to.
TEST_F(GpuSurvive, BothGpusOneAfterTheOther_LeaveTheBitsOfAnUndisturbedTraining) {
  StartUpWith("sticky");
  constexpr int kFirst = 3;
  const auto first = BreakingStep(kFirst), second = BreakingStep(kMiddle + 2);
  const Trained got = Train([&](int step) { first(step), second(step); });
  ExpectUndisturbed(got);
  ExpectFaults("sticky", 2, got);
  EXPECT_TRUE(Contains(Log(), "event=device_failed device=0") &&
              Contains(Log(), "event=device_failed device=1"))
      << Log();
  ExpectEnds(2);
}

// Where there is no other GPU, another process of the same one goes on.
TEST_F(GpuSurvive, TheOnlyGpu_LeavesTheBitsOfAnUndisturbedTraining) {
  StartUpWith("sticky", /*devices=*/1);
  const Trained got = Train(BreakingStep(kMiddle));
  ExpectUndisturbed(got);
  ExpectFaults("sticky", 1, got);
}

// The session leaves the GPU that is out of service; the next one has the other GPU, too.
TEST_F(GpuSurvive, AnEccErrorInTheMiddle_LeavesTheBitsOfAnUndisturbedTraining) {
  StartUpWith("ecc");
  const Trained got = Train(BreakingStep(kMiddle));
  ExpectUndisturbed(got);
  ExpectFaults("ecc", 1, got);
  EXPECT_TRUE(Contains(Log(), "event=device_out_of_service")) << Log();
  ExpectEnds(1);
  ExpectOutOfService(1);
  ExpectUndisturbed(Train());
}

// ---- what fails again in the replay ------------------------------------------------------------

constexpr int kPoisonInputs = 24;  // as no kernel of the training has

// The sum of as many arrays.
absl::Status RunPoison() {
  Session& session = *SessionIfConnected();
  Graph g;
  const std::vector<float> ones(35, 1);
  const int64_t dims[] = {5, 7};
  std::vector<uint64_t> inputs;
  const UOp* sum = nullptr;
  for (int i = 0; i < kPoisonInputs; ++i) {
    inputs.push_back(session.NewHandle());
    OB_RETURN_IF_ERROR(
        session.Put(inputs.back(), DType::kF32, dims,
                    {reinterpret_cast<const char*>(ones.data()), ones.size() * sizeof(float)}));
    const UOp* const x = Param(g, i, DType::kF32, {Dim(5), Dim(7)});
    sum = sum == nullptr ? x : Add(g, sum, x);
  }
  const uint64_t output = session.NewHandle();
  OB_ASSIGN_OR_RETURN(const uint64_t seq,
                      session.Run(test::RequestOf(Sink(g, {sum}), inputs, {output}, true)));
  const absl::Status status = session.Await(seq, 0).status();
  for (const uint64_t input : inputs) session.Release(input);
  session.Release(output);
  return status;
}

// The Run fails, and what does not depend on it goes on with the values that were there.
TEST_F(GpuSurvive, ARunThatBreaksBothGpus_FailsAloneAndTheStateComesBack) {
  StartUpWith("sticky", /*devices=*/2,
              {"OUTBOARD_FAKE_CUDA_FAULT_PARAMETERS=" + std::to_string(kPoisonInputs + 1)});
  absl::Status of_poison;
  const auto wait = BreakingStep(kMiddle);
  const Trained got = Train([&](int step) {
    if (step != kMiddle) return wait(step);
    BreakKernels(3);  // once more than it is tried
    of_poison = RunPoison();
  });
  ExpectUndisturbed(got);
  ExpectFaults("sticky", 2, got);
  EXPECT_EQ(of_poison.code(), StatusCode::kInternal) << of_poison;
  EXPECT_TRUE(Contains(of_poison.message(), "CUDA_ERROR_ILLEGAL_ADDRESS")) << of_poison;
  test::ExpectAsDocumented("A kernel breaks a GPU's driver, and a second one's", of_poison);
  ExpectEnds(2);
}

// ---- another class of device --------------------------------------------------------------------

// A session stays with its class while a GPU of that is in service. Other kernels may sum in
// another order: by docs/semantics.md ("Between devices"), 1e-5 in the first step and 1e-4 more in
// each.
TEST_F(GpuSurvive, AMoveToAnotherClass_IsToldAndChangesNoMoreThanLastBits) {
  StartUpWith("ecc", /*devices=*/2, {"OUTBOARD_FAKE_CUDA_ARCH=90,80"});
  const Trained got = Train(BreakingStep(kMiddle));
  ExpectFaults("ecc", 1, got);
  test::ExpectAsDocumented("A session moves to another kind of device", got.told);
  EXPECT_TRUE(Contains(got.told, "sm_80") && Contains(got.told, "sm_90")) << got.told;
  const Trained& wanted = Undisturbed();
  ASSERT_EQ(got.losses.size(), wanted.losses.size());
  for (size_t i = 0; i < wanted.losses.size(); ++i) {
    EXPECT_TRUE(std::isfinite(got.losses[i])) << "step " << i;
    const float bound = 1e-5F + 1e-4F * static_cast<float>(i);
    EXPECT_NEAR(got.losses[i], wanted.losses[i], bound * std::abs(wanted.losses[i]))
        << "step " << i;
  }
}

}  // namespace
}  // namespace outboard
