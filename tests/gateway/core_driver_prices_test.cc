// The price file at the driver: who may join, what a client may ask for and is told, and what
// becomes of another file.
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gateway/prices/price_list.h"
#include "tests/gateway/core_driver_world.h"

namespace outboard::gateway {
namespace {

std::shared_ptr<const PriceList> List(const std::string& classes) {
  auto list = ParsePriceList("{\"classes\": [" + classes + "]}");
  EXPECT_TRUE(list.ok()) << list.status();
  return std::make_shared<const PriceList>(*std::move(list));
}

constexpr char kAny[] =
    R"({"name": "any", "hardware": ["small"], "usd_per_hour": {"run": 3.6, "held": 1.8, )"
    R"("parked": 0.36, "stored": 0.036}})";
constexpr char kFast[] =
    R"({"name": "fast", "hardware": ["quick"], "rates": {"gflops": 100, "memory_gb_per_s": 10}, )"
    R"("usd_per_hour": {"run": 7.2}})";

class WatchedEnd final : public WorkerEndpoint {
 public:
  void Send(proto::GatewayCommand command) override { sent.push_back(std::move(command)); }
  void End(absl::Status why) override { ended = std::move(why); }
  bool asked() const { return !sent.empty() && sent.back().has_measure(); }
  bool welcome() const { return !sent.empty() && sent.back().has_welcome(); }
  std::vector<proto::GatewayCommand> sent;
  absl::Status ended;
};

// Without the worker of CoreDriverTest, which has joined before there is a list.
class DriverPrices : public CoreDriverTest {
 protected:
  DriverPrices() { worker_port_.OnGone(); }

  static proto::WorkerEvent Registration(const std::string& hardware, bool measures = true) {
    proto::WorkerEvent event;
    proto::Register& reg = *event.mutable_register_();
    reg.set_name("w");
    reg.set_identity(std::string(kWorkerIdentityBytes, 'z'));
    reg.set_measures(measures);
    wire::SetRange(wire::kProtocolOfWorkers, *reg.mutable_protocol());
    reg.add_devices()->set_hardware_class(hardware);
    return event;
  }
  static proto::WorkerEvent Measured(double gflops, double memory) {
    proto::WorkerEvent event;
    proto::DeviceRates& rates = *event.mutable_measured()->add_rates();
    rates.set_gflops(gflops);
    rates.set_memory_gb_per_s(memory);
    return event;
  }
  WatchedEnd end_;
  WorkerPort port_{&driver_, &end_};
};

TEST_F(DriverPrices, AClassWithoutRates_JoinsAtOnce) {
  ASSERT_TRUE(driver_.SetPrices(List(kAny)).ok());
  port_.OnEvent(Registration("small"));
  EXPECT_TRUE(end_.welcome());
  port_.OnGone();
}

TEST_F(DriverPrices, ADeviceOfNoClass_IsRefused) {
  ASSERT_TRUE(driver_.SetPrices(List(kAny)).ok());
  port_.OnEvent(Registration("unheard-of"));
  EXPECT_EQ(end_.ended.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(end_.ended.message()).find("unheard-of"), std::string::npos);
  EXPECT_EQ(driver_.devices_total(), 0u);
}

TEST_F(DriverPrices, RateCheck_OneThatReachesItsClass_Joins) {
  ASSERT_TRUE(driver_.SetPrices(List(kFast)).ok());
  port_.OnEvent(Registration("quick"));
  ASSERT_TRUE(end_.asked());
  EXPECT_EQ(driver_.devices_total(), 0u) << "not before it is measured";
  proto::WorkerEvent beat;
  beat.mutable_heartbeat()->set_beat(1);
  port_.OnEvent(beat);
  EXPECT_EQ(end_.sent.size(), 1u) << "who has not joined is not answered";
  port_.OnEvent(Measured(95, 12));
  EXPECT_TRUE(end_.welcome());
  EXPECT_EQ(driver_.devices_total(), 1u);
  const DeviceSlot slot = driver_.Look().devices.at(0).slot;
  EXPECT_EQ(slot.gflops, 95);
  EXPECT_EQ(slot.memory_gb_per_s, 12);
  port_.OnGone();
}

// Without a promise nobody asks: what a worker says is shown, if it is a number.
TEST_F(DriverPrices, WithoutAList_RatesAreShown_IfTheyAreNumbers) {
  proto::WorkerEvent event = Registration("quick");
  *event.mutable_register_()->mutable_devices(0)->mutable_rates() =
      Measured(std::numeric_limits<double>::infinity(), 12).measured().rates(0);
  port_.OnEvent(event);
  ASSERT_TRUE(end_.welcome());
  const DeviceSlot slot = driver_.Look().devices.at(0).slot;
  EXPECT_EQ(slot.gflops, 0);
  EXPECT_EQ(slot.memory_gb_per_s, 12);
  port_.OnGone();
}

TEST_F(DriverPrices, RateCheck_OneThatFallsShort_IsRefused) {
  ASSERT_TRUE(driver_.SetPrices(List(kFast)).ok());
  port_.OnEvent(Registration("quick"));
  ASSERT_TRUE(end_.asked());
  port_.OnEvent(Measured(50, 12));
  EXPECT_EQ(end_.ended.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(end_.ended.message()).find("GFLOP/s"), std::string::npos) << end_.ended;
  EXPECT_EQ(driver_.devices_total(), 0u);
}

TEST_F(DriverPrices, RateCheck_FiguresThatAreNone_AreRefused) {
  ASSERT_TRUE(driver_.SetPrices(List(kFast)).ok());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const proto::WorkerEvent& event :
       {Measured(nan, 12), Measured(-1, 12), Measured(0, 0), proto::WorkerEvent([] {
          proto::WorkerEvent failed;
          failed.mutable_measured()->set_failed("it ended by signal 9");
          return failed;
        }())}) {
    WatchedEnd end;
    WorkerPort port(&driver_, &end);
    port.OnEvent(Registration("quick"));
    ASSERT_TRUE(end.asked());
    port.OnEvent(event);
    EXPECT_EQ(end.ended.code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST_F(DriverPrices, RateCheck_AWorkerFromBefore_IsRefused) {
  ASSERT_TRUE(driver_.SetPrices(List(kFast)).ok());
  port_.OnEvent(Registration("quick", /*measures=*/false));
  EXPECT_EQ(end_.ended.code(), absl::StatusCode::kFailedPrecondition);
}

// A worker whose connection broke is back within seconds, with sessions on its devices.
TEST_F(DriverPrices, RateCheck_OneThatWasMeasured_IsNotMeasuredAgain) {
  ASSERT_TRUE(driver_.SetPrices(List(kFast)).ok());
  proto::WorkerEvent again = Registration("quick");
  *again.mutable_register_()->mutable_devices(0)->mutable_rates() =
      Measured(95, 12).measured().rates(0);
  port_.OnEvent(again);
  EXPECT_TRUE(end_.welcome());
  port_.OnGone();
  again.mutable_register_()->mutable_devices(0)->mutable_rates()->set_gflops(1);
  WatchedEnd end;
  WorkerPort port(&driver_, &end);
  port.OnEvent(again);
  EXPECT_EQ(end.ended.code(), absl::StatusCode::kFailedPrecondition) << "but checked";
}

// ---- nodes: a machine that has just booted over the network

class DriverNodes : public DriverPrices {
 protected:
  DriverNodes() {
    port_.SetNode("s-1", [this](const absl::Status& result) { tested_.push_back(result); });
  }
  static proto::WorkerEvent Tested() {
    proto::WorkerEvent event;
    event.mutable_measured()->set_tested(true);
    return event;
  }
  std::vector<absl::Status> tested_;
};

TEST_F(DriverNodes, ANewNode_IsTestedBeforeItJoins) {
  port_.OnEvent(Registration("any"));
  ASSERT_TRUE(end_.asked());
  EXPECT_TRUE(end_.sent.back().measure().test());
  EXPECT_TRUE(end_.sent.back().measure().without_rates());
  EXPECT_EQ(driver_.devices_total(), 0u);
  EXPECT_TRUE(driver_.NodesHere().empty());
  port_.OnEvent(Tested());
  EXPECT_TRUE(end_.welcome());
  EXPECT_EQ(driver_.NodesHere(), std::set<std::string>{"s-1"});
  ASSERT_EQ(tested_.size(), 1u);
  EXPECT_TRUE(tested_[0].ok());
  port_.OnGone();
  EXPECT_TRUE(driver_.NodesHere().empty());
}

TEST_F(DriverNodes, OneThatFails_StaysInQuarantine_AndWhyIsNoted) {
  port_.OnEvent(Registration("any"));
  proto::WorkerEvent failed;
  failed.mutable_measured()->set_fault("device 0: the memory:\nword 7");
  port_.OnEvent(failed);
  EXPECT_EQ(end_.ended.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(driver_.devices_total(), 0u);
  ASSERT_EQ(tested_.size(), 1u);
  EXPECT_EQ(tested_[0].message(), "the join test failed: device 0: the memory:\\nword 7");
  EXPECT_FALSE(driver_.RestartNode("s-1", "a test"));
}

TEST_F(DriverNodes, OneThatDoesNotSayThatItPassed_HasNot) {
  port_.OnEvent(Registration("any"));
  port_.OnEvent(Measured(95, 12));
  EXPECT_EQ(end_.ended.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(driver_.devices_total(), 0u);
}

TEST_F(DriverNodes, OneThatIsTooOldForATest_IsRefused) {
  port_.OnEvent(Registration("any", /*measures=*/false));
  EXPECT_EQ(end_.ended.code(), absl::StatusCode::kFailedPrecondition);
}

// Its connection broke: its devices may be in use.
TEST_F(DriverNodes, OneThatHasPassed_IsNotTestedAgain) {
  proto::WorkerEvent again = Registration("any");
  again.mutable_register_()->set_tested(true);
  port_.OnEvent(again);
  EXPECT_TRUE(end_.welcome());
  port_.OnGone();
}

TEST_F(DriverNodes, OfAClassWithRates_IsTestedAndMeasured) {
  ASSERT_TRUE(driver_.SetPrices(List(kFast)).ok());
  port_.OnEvent(Registration("quick"));
  ASSERT_TRUE(end_.asked());
  EXPECT_FALSE(end_.sent.back().measure().without_rates());
  proto::WorkerEvent both = Measured(95, 12);
  both.mutable_measured()->set_tested(true);
  port_.OnEvent(both);
  EXPECT_TRUE(end_.welcome());
  port_.OnGone();
}

TEST_F(DriverNodes, Restart_GoesToTheNodeThatIsNamed) {
  proto::WorkerEvent known = Registration("any");
  known.mutable_register_()->set_tested(true);
  known.mutable_register_()->set_name("s-2");  // what it says is not what it proves
  port_.OnEvent(known);
  WatchedEnd other_end;
  WorkerPort other(&driver_, &other_end);
  known.mutable_register_()->set_name("s-1");
  other.OnEvent(known);
  EXPECT_FALSE(driver_.RestartNode("s-2", "a test"));
  EXPECT_FALSE(driver_.RestartNode("", "a test"));
  EXPECT_TRUE(driver_.RestartNode("s-1", "a test"));
  EXPECT_TRUE(end_.sent.back().drain().restart());
  EXPECT_FALSE(other_end.sent.back().has_drain());
  EXPECT_TRUE(driver_.DrainNode("s-1"));
  EXPECT_TRUE(driver_.SetNodeAside("s-1", "a test"));
  other.OnGone();
  port_.OnGone();
}

TEST_F(DriverPrices, AListWithoutAClassInUse_IsRefusedAndTheOldOneStays) {
  ASSERT_TRUE(driver_.SetPrices(List(kAny)).ok());
  port_.OnEvent(Registration("small"));
  const absl::Status status = driver_.SetPrices(List(kFast));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(std::string(status.message()).find("any"), std::string::npos);
  EXPECT_NE(driver_.prices()->Find("any"), nullptr);
  EXPECT_TRUE(driver_.SetPrices(List(std::string(kAny) + "," + kFast)).ok());
  port_.OnGone();
  EXPECT_TRUE(driver_.SetPrices(List(kFast)).ok()) << "it is in use no more";
}

TEST_F(DriverPrices, AClient_IsToldItsClassAndWhatItCosts) {
  ASSERT_TRUE(driver_.SetPrices(List(kAny)).ok());
  port_.OnEvent(Registration("small"));
  proto::ClientFrame open = OpenFrame();
  open.mutable_items(0)->mutable_open()->set_device_class("any");
  Open(client_port_, open);
  const proto::Assign* assign = nullptr;
  for (const proto::GatewayCommand& command : end_.sent)
    if (command.has_assign()) assign = &command.assign();
  ASSERT_NE(assign, nullptr);
  ASSERT_TRUE(Attach(executor_port_, *assign).ok());
  RunAll(writes_.jobs);
  RunAll(writes_.jobs);
  ASSERT_FALSE(executor_.sent.empty());
  proto::ServerFrame opened;
  opened.set_epoch(1);
  opened.add_items()->mutable_opened()->set_price_class("lie");
  executor_port_.OnFrame(std::move(opened));
  ASSERT_FALSE(client_.sent.empty());
  const proto::Opened& told = client_.sent.back().items(0).opened();
  EXPECT_EQ(told.price_class(), "any");
  EXPECT_EQ(told.price_per_hour_micro_usd(), 3'600'000u);
  EXPECT_EQ(told.held_per_hour_micro_usd(), 1'800'000u);
  EXPECT_EQ(told.parked_per_hour_micro_usd(), 360'000u);
  EXPECT_EQ(told.stored_per_hour_micro_usd(), 36'000u);
  ASSERT_FALSE(writes_.rows.empty());
  EXPECT_EQ(writes_.rows.back().price_class, "any");
  EXPECT_EQ(writes_.rows.back().idle_prices.stored, MicroUsd{36'000});
  client_port_.OnGone();
  port_.OnGone();
}

TEST_F(DriverPrices, AClassThatThereIsNot_IsRefusedByName) {
  proto::ClientFrame open = OpenFrame();
  open.mutable_items(0)->mutable_open()->set_device_class("large");
  Open(client_port_, open);
  ASSERT_FALSE(client_.ends.empty());
  EXPECT_EQ(client_.ends.back().code(), absl::StatusCode::kInvalidArgument) << "there is no list";
  ASSERT_TRUE(driver_.SetPrices(List(kAny)).ok());
  ClientEnd end;
  ClientPort port(&driver_, &host_, &auth_, &end, {});
  Open(port, open);
  ASSERT_FALSE(end.ends.empty());
  EXPECT_EQ(end.ends.back().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(end.ends.back().message()).find("any"), std::string::npos);
  port.OnGone();
}

// ---- machines of an account's own ---------------------------------------------------------------

TEST_F(DriverPrices, AnOwnMachine_JoinsWithoutAClassAndIsToldOfNoSocket) {
  ASSERT_TRUE(driver_.SetPrices(List(kFast)).ok());
  driver_.SetLocalSocket("a socket");
  port_.SetOwner(Identity{TenantId{1}, "k"});
  port_.OnEvent(Registration("unheard-of", /*measures=*/false));
  ASSERT_TRUE(end_.welcome());
  EXPECT_EQ(end_.sent.back().welcome().local_socket(), "");
  proto::ClientFrame open = OpenFrame();
  open.mutable_items(0)->mutable_open()->set_device_class("own");
  Open(client_port_, open);
  ASSERT_FALSE(end_.sent.empty());
  EXPECT_TRUE(end_.sent.back().has_assign());
  EXPECT_TRUE(driver_.SetPrices(List(kAny)).ok()) << "own is no class of a file";
  client_port_.OnGone();
  port_.OnGone();
}

TEST_F(DriverPrices, AnOwnMachine_IsCutOffWithItsKey) {
  port_.SetOwner(Identity{TenantId{1}, "k"});
  port_.OnEvent(Registration("small"));
  ASSERT_TRUE(end_.welcome());
  auth_.refused = "k";
  for (int64_t i = 0; i < kKeyCheckTicks; ++i) Tick(200);
  RunAll(host_.jobs);
  EXPECT_EQ(end_.ended.code(), absl::StatusCode::kUnauthenticated);
  port_.OnGone();
}

TEST_F(DriverPrices, OwnMachines_AreBounded) {
  std::vector<std::unique_ptr<WatchedEnd>> ends;
  std::vector<std::unique_ptr<WorkerPort>> ports;
  for (size_t i = 0; i <= kOwnWorkersMax; ++i) {
    ends.push_back(std::make_unique<WatchedEnd>());
    ports.push_back(std::make_unique<WorkerPort>(&driver_, ends.back().get()));
    ports.back()->SetOwner(Identity{TenantId{1}, "k"});
    ports.back()->OnEvent(Registration("small"));
    EXPECT_EQ(ends.back()->welcome(), i < kOwnWorkersMax) << i;
  }
  EXPECT_EQ(ends.back()->ended.code(), absl::StatusCode::kResourceExhausted);
  for (const auto& port : ports) port->OnGone();
}

}  // namespace
}  // namespace outboard::gateway
