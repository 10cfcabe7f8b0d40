// A Session through a real gateway (unix socket, accounts file, blob store) to a fake worker in the
// same process.
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "client/session/link/grpc_link.h"
#include "client/session/link/values_stream.h"
#include "client/session/session.h"
#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "gateway/accounts/accounts.h"
#include "gateway/base/clock.h"
#include "gateway/ledger/ledger.h"
#include "gateway/server/gateway.h"
#include "proto/cloud.grpc.pb.h"
#include "tests/net/fault_proxy.h"
#include "tests/support/documented.h"
#include "tests/support/gateway_test.h"
#include "tests/support/step.h"
#include "wire/limits.h"
#include "wire/version.h"

namespace outboard {
namespace {

// Else a client gives up before it is told why it gets no device.
TEST(SessionOptions, WaitLongerThanTheGateway) {
  const gateway::CoreOptions gateway;
  EXPECT_GT(std::chrono::nanoseconds(session::SessionOptions().open_timeout).count(),
            gateway.queue_ns + gateway.start_ns);
}

using absl::StatusCode;
using session::MayLoseValues;
using session::RunRequest;
using session::SessionOptions;

class SessionGatewayTest : public test::GatewayTest {
 protected:
  std::unique_ptr<test::FaultProxy> Proxy() {
    return std::make_unique<test::FaultProxy>(gateway_->address(), "unix:" + folder_ / "proxy");
  }
  // x + x of four floats.
  RunRequest Double(uint64_t in, uint64_t out, bool fetch) {
    Graph g;
    const UOp* x = Param(g, 0, DType::kF32, {Dim(4)});
    return test::RequestOf(Sink(g, {Add(g, x, x)}), {in}, {out}, fetch);
  }
};

const int64_t kFour[] = {4};
const std::string kBytes(16, 'x');

TEST_F(SessionGatewayTest, PutRunAwait) {
  StartAll();
  auto session = Connect();
  ASSERT_NE(session, nullptr);
  uint64_t in = session->NewHandle(), out = session->NewHandle();
  ASSERT_TRUE(session->Put(in, DType::kF16, kFour, kBytes).ok());
  auto seq = session->Run(Double(in, out, true));
  ASSERT_TRUE(seq.ok());
  auto value = session->Await(*seq, 0);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->bytes, kBytes);
  EXPECT_EQ(value->dims, std::vector<int64_t>{4});
  EXPECT_EQ(value->dtype, DType::kF16);
  EXPECT_EQ(session->Await(*seq, 0).status().code(), StatusCode::kFailedPrecondition);  // taken
  auto again = session->Fetch(in);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(session->Await(*again, 0)->bytes, kBytes);
}

TEST_F(SessionGatewayTest, DebugTellsWhenASessionBeginsAndEnds) {
  StartAll();
  SessionOptions options;
  options.target = gateway_->address();
  options.debug = true;
  std::vector<std::string> lines;
  options.tell = [&](const std::string& line) { lines.push_back(line); };
  auto session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].rfind("a session at " + gateway_->address() + ": ", 0), 0u) << lines[0];
  const uint64_t in = (*session)->NewHandle(), out = (*session)->NewHandle();
  ASSERT_TRUE((*session)->Put(in, DType::kF16, kFour, kBytes).ok());
  ASSERT_TRUE((*session)->Run(Double(in, out, false)).ok());
  ASSERT_TRUE((*session)->Sync().ok());
  ASSERT_TRUE((*session)->Close().ok());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_NE(lines[1].find("has ended: 1 runs, "), std::string::npos) << lines[1];
  EXPECT_EQ(lines[2].rfind("estimate", 0), 0u) << lines[2];
}

TEST_F(SessionGatewayTest, AStepIsOneFrameAndTheGraphGoesOnce) {
  StartAll();
  auto session = Connect();
  ASSERT_NE(session, nullptr);
  uint64_t state = session->NewHandle();
  ASSERT_TRUE(session->Put(state, DType::kF16, kFour, kBytes).ok());
  uint64_t frames = session->stats().frames_up;
  for (int step = 0; step < 50; ++step) {
    uint64_t next = session->NewHandle();
    ASSERT_TRUE(session->Run(Double(state, next, false)).ok());
    session->Release(state);
    state = next;
  }
  EXPECT_EQ(session->stats().frames_up, frames + 50);
  EXPECT_EQ(session->stats().blocking_round_trips, 0u);
  ASSERT_TRUE(session->Sync().ok());
  EXPECT_EQ(session->stats().blocking_round_trips, 1u);
  EXPECT_EQ(worker_->graphs(), 1);
  EXPECT_EQ(worker_->runs(), 50);
}

// The first large value comes as all do, the next ones over a connection of their own. Either way
// they are whole, and small ones between them.
TEST_F(SessionGatewayTest, LargeValuesComeWhole) {
  StartAll();
  auto session = Connect();
  ASSERT_NE(session, nullptr);
  const std::string bytes(400'000, 'v');
  const int64_t dims[] = {static_cast<int64_t>(bytes.size())};
  const uint64_t large = session->NewHandle(), small = session->NewHandle();
  ASSERT_TRUE(session->Put(large, DType::kBool, dims, bytes).ok());
  ASSERT_TRUE(session->Put(small, DType::kF16, kFour, kBytes).ok());
  std::vector<uint64_t> seqs;
  // The other connection is made while the program goes on.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int round = 0; round < 3 || (session->stats().bytes_down_apart < bytes.size() &&
                                    std::chrono::steady_clock::now() < deadline);
       ++round) {
    for (int i = 0; i < 4; ++i) seqs.push_back(session->Fetch(i % 2 == 0 ? large : small).value());
    for (const uint64_t seq : std::exchange(seqs, {})) {
      const auto value = session->Await(seq, 0);
      ASSERT_TRUE(value.ok()) << value.status();
      EXPECT_TRUE(value->bytes == bytes || value->bytes == kBytes);
    }
  }
  EXPECT_TRUE(session->status().ok());
  EXPECT_GE(session->stats().bytes_down_apart, bytes.size());
}

TEST_F(SessionGatewayTest, LargePutsGoByHashAndOnce) {
  StartAll();
  std::string bytes(9 << 20, '\0');
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>(i * uint64_t{0x9e3779b97f4a7c15} >> 40);
  const int64_t dims[] = {static_cast<int64_t>(bytes.size())};
  for (int round = 0; round < 2; ++round) {
    auto session = Connect();
    ASSERT_NE(session, nullptr);
    uint64_t handle = session->NewHandle();
    absl::Status put = session->Put(handle, DType::kBool, dims, bytes);
    ASSERT_TRUE(put.ok()) << put;
    ASSERT_TRUE(session->Sync().ok());
    EXPECT_EQ(worker_->put_bytes(), bytes.size() * (round + 1));
    uint64_t up = session->stats().bytes_up;
    if (round == 0) {
      EXPECT_GT(up, bytes.size());
    } else {
      EXPECT_LT(up, 4096u);  // the cloud has it
    }
  }
}

TEST_F(SessionGatewayTest, ABadGraphFailsWhereItsValueIsAskedFor) {
  StartAll();
  auto session = Connect();
  ASSERT_NE(session, nullptr);
  uint64_t in = session->NewHandle();
  ASSERT_TRUE(session->Put(in, DType::kF16, kFour, kBytes).ok());
  RunRequest request = Double(in, session->NewHandle(), true);
  auto bad = std::make_shared<std::string>(*request.graph);
  bad->back() ^= 0x55;
  request.graph = bad;
  request.graph_id = Sha256(*bad);
  auto seq = session->Run(request);
  ASSERT_TRUE(seq.ok());
  EXPECT_EQ(session->Await(*seq, 0).status().code(), StatusCode::kInvalidArgument);
  request = Double(in, session->NewHandle(), true);
  request.graph_id[0] ^= 1;  // bytes of another id
  seq = session->Run(request);
  ASSERT_TRUE(seq.ok());
  EXPECT_EQ(session->Await(*seq, 0).status().code(), StatusCode::kInvalidArgument);
  // The session goes on.
  seq = session->Run(Double(in, session->NewHandle(), true));
  EXPECT_TRUE(session->Await(*seq, 0).ok());
}

TEST_F(SessionGatewayTest, KeysAreChecked) {
  StartGateway();
  StartWorker();
  auto accounts = gateway::Accounts::Open(gateway::AccountsPath(data())).value();
  auto tenant = accounts->EnsureTenant("t", gateway::WallNow()).value();
  auto key = accounts->CreateKey(tenant.id, "k", gateway::WallNow()).value();
  EXPECT_EQ(Session::Connect(Options()).status().code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(Session::Connect(Options("ob_live_wrong")).status().code(),
            StatusCode::kUnauthenticated);
  auto session = Session::Connect(Options(std::string(key.text.Reveal())));
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE((*session)->Close().ok());
  ASSERT_TRUE(accounts->RevokeKey(key.key.id, gateway::WallNow()).ok());
  EXPECT_EQ(Session::Connect(Options(std::string(key.text.Reveal()))).status().code(),
            StatusCode::kUnauthenticated);
}

TEST_F(SessionGatewayTest, ARevokedKeyEndsItsSessions) {
  StartGateway();
  StartWorker();
  auto accounts = gateway::Accounts::Open(gateway::AccountsPath(data())).value();
  auto tenant = accounts->EnsureTenant("t", gateway::WallNow()).value();
  auto key = accounts->CreateKey(tenant.id, "k", gateway::WallNow()).value();
  auto session = Session::Connect(Options(std::string(key.text.Reveal())));
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE(accounts->RevokeKey(key.key.id, gateway::WallNow()).ok());
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(8);
  while ((*session)->status().ok() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ((*session)->status().code(), StatusCode::kUnauthenticated);
}

// What the session tells people, in order.
class Lines {
 public:
  std::function<void(const std::string&)> Tell() {
    return [this](const std::string& line) {
      std::lock_guard lock(mutex_);
      text_ += line + "\n";
    };
  }
  std::string text() const {
    std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

TEST_F(SessionGatewayTest, TellsThatItWaitsAndThatTheGatewayStops) {
  StartAll();
  auto first = Connect(), second = std::unique_ptr<Session>();
  ASSERT_NE(first, nullptr);
  Lines lines;
  SessionOptions options = Options();
  options.tell = lines.Tell();
  std::thread waiting([&] { second = Session::Connect(options).value(); });
  EXPECT_TRUE(test::Eventually(
      [&] { return lines.text().find("waiting for a device") != std::string::npos; }));
  EXPECT_TRUE(first->Close().ok());
  waiting.join();
  gateway_->Stop(std::chrono::milliseconds(0));
  EXPECT_TRUE(test::Eventually([&] {
    return lines.text().find("the gateway stops soon") != std::string::npos;
  })) << lines.text();
  EXPECT_TRUE(test::Eventually([&] { return !second->status().ok(); }));
  test::ExpectAsDocumented("The gateway is stopped", second->status());
}

TEST_F(SessionGatewayTest, TellsWhileItSeeksTheGateway) {
  StartAll();
  auto proxy = Proxy();
  Lines lines;
  SessionOptions options = Options();
  options.target = proxy->address();
  options.tell = lines.Tell();
  options.reconnect_timeout = std::chrono::milliseconds(1500);
  auto session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status();
  proxy.reset();
  EXPECT_TRUE(test::Eventually([&] { return !lines.text().empty(); }));
  test::ExpectAsDocumented("The gateway is gone: while the client tries", lines.text());
  EXPECT_NE(lines.text().find(options.target), std::string::npos);
  proxy = Proxy();
  EXPECT_TRUE(test::Eventually([&] {
    return lines.text().find("nothing was lost") != std::string::npos;
  })) << lines.text();
  test::ExpectAsDocumented("The connection breaks for a moment", lines.text());
  EXPECT_TRUE((*session)->Sync().ok());
  auto seq = (*session)->Run(Double((*session)->NewHandle(), (*session)->NewHandle(), false));
  ASSERT_TRUE(seq.ok());
  ASSERT_TRUE((*session)->Sync().ok());
  proxy.reset();
  EXPECT_TRUE(test::Eventually([&] { return !(*session)->status().ok(); }));
  test::ExpectAsDocumented("The gateway is gone: in the end", (*session)->status());
}

TEST_F(SessionGatewayTest, ALinkMayBeLostWhileTheProgramIsToldOfTheLastOne) {
  StartAll();
  auto proxy = Proxy();
  std::promise<void> told, go_on;
  SessionOptions options = Options();
  options.target = proxy->address();
  options.tell = [&, first = true](const std::string& line) mutable {
    if (line.find("nothing was lost") == std::string::npos || !std::exchange(first, false)) return;
    told.set_value();
    go_on.get_future().wait();
  };
  auto session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status();
  proxy.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // worth a line
  proxy = Proxy();
  told.get_future().wait();
  proxy->CutAll();
  // The session answers meanwhile, before its client has noticed the cut and after.
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE((*session)->status().ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  go_on.set_value();
  EXPECT_TRUE((*session)->Sync().ok());
}

TEST(MayLoseValues, UnlessTheStreamWasRefusedOrEndedByTheGateway) {
  for (const absl::Status& end :
       {absl::OkStatus(), absl::UnavailableError(""), absl::InternalError(""),
        absl::CancelledError(""), absl::ResourceExhaustedError("")})
    EXPECT_TRUE(MayLoseValues(end)) << end;
  for (const absl::Status& end : {absl::UnimplementedError(""), absl::UnauthenticatedError(""),
                                  absl::NotFoundError(""), absl::AbortedError("")})
    EXPECT_FALSE(MayLoseValues(end)) << end;
}

TEST_F(SessionGatewayTest, NobodyListens) {
  SessionOptions options;
  options.target = "127.0.0.1:1";
  auto session = Session::Connect(options);
  test::ExpectAsDocumented("Nobody answers at the address", session.status());
  EXPECT_NE(std::string(session.status().message()).find("127.0.0.1:1 "), std::string::npos);
}

TEST_F(SessionGatewayTest, SomebodyListensWhoIsNoGateway) {
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (folder_ / "mute").c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  SessionOptions options;
  options.target = "unix:" + folder_ / "mute";
  options.connect_timeout = std::chrono::milliseconds(300);
  test::ExpectAsDocumented("Nobody answers at the address", Session::Connect(options).status());
  close(listener);
}

TEST_F(SessionGatewayTest, NoWorkerAndNoFreeDevice) {
  gateway::GatewayOptions options;
  options.no_auth = true;
  options.core.queue_ns = 300'000'000;
  StartGateway(options);
  test::ExpectAsDocumented("No worker has joined", Session::Connect(Options()).status());
  StartWorker();
  auto first = Connect();
  ASSERT_NE(first, nullptr);
  session::SessionOptions impatient = Options();
  impatient.queue_timeout = std::chrono::milliseconds(300);
  absl::Status status = Session::Connect(impatient).status();
  test::ExpectAsDocumented("No device is free", status);
  EXPECT_NE(std::string(status.message()).find("1 of 1"), std::string::npos) << status;
  ASSERT_TRUE(first->Close().ok());
  EXPECT_NE(Connect(), nullptr);  // the device is free when Close returns
}

TEST_F(SessionGatewayTest, ALostWorkerIsSaidSo) {
  StartAll();
  auto session = Connect();
  ASSERT_NE(session, nullptr);
  uint64_t in = session->NewHandle();
  ASSERT_TRUE(session->Put(in, DType::kF16, kFour, kBytes).ok());
  ASSERT_TRUE(session->Sync().ok());
  worker_->Stop();
  absl::Status status;
  for (int i = 0; i < 100 && status.ok(); ++i) {
    auto seq = session->Fetch(in);
    status = seq.ok() ? session->Await(*seq, 0).status() : seq.status();
  }
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(std::string(status.message()).find("worker lost"), std::string::npos) << status;
}

TEST_F(SessionGatewayTest, ACrashedExecutorIsSaidSoWithItsReason) {
  StartAll();
  auto session = Connect();
  ASSERT_NE(session, nullptr);
  worker_->CrashExecutors("executor ended by signal 9");
  auto seq = session->Fetch(1);
  absl::Status status = seq.ok() ? session->Await(*seq, 0).status() : seq.status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(std::string(status.message()).find("signal 9"), std::string::npos) << status;
  // The worker is there, and takes the next one.
  EXPECT_NE(Connect(), nullptr);
}

TEST_F(SessionGatewayTest, ACutConnectionLosesNothing) {
  StartAll();
  auto proxy = Proxy();
  SessionOptions options = Options();
  options.target = proxy->address();
  auto session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status();
  uint64_t state = (*session)->NewHandle();
  ASSERT_TRUE((*session)->Put(state, DType::kF16, kFour, kBytes).ok());
  int runs = 0;
  for (int cut = 0; cut < 3; ++cut) {
    std::vector<uint64_t> seqs;
    for (int step = 0; step < 40; ++step) {
      uint64_t next = (*session)->NewHandle();
      auto seq = (*session)->Run(Double(state, next, step % 8 == 0));
      ASSERT_TRUE(seq.ok()) << seq.status();
      if (step % 8 == 0) seqs.push_back(*seq);
      (*session)->Release(state);
      state = next;
      ++runs;
      if (step == 20) proxy->CutAll();
    }
    for (uint64_t seq : seqs) {
      auto value = (*session)->Await(seq, 0);
      ASSERT_TRUE(value.ok()) << value.status();
      EXPECT_EQ(value->bytes, kBytes);
    }
  }
  ASSERT_TRUE((*session)->Sync().ok());
  EXPECT_EQ(worker_->runs(), runs);  // each exactly once
  EXPECT_EQ(gateway_->session_count(), 1u);
}

TEST_F(SessionGatewayTest, AGatewayThatStopsEndsItsSessionsWithTheBill) {
  StartAll();
  auto session = Connect();
  ASSERT_NE(session, nullptr);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  worker_->Stop();
  gateway_->Stop(std::chrono::milliseconds(0));
  EXPECT_FALSE(session->Sync().ok());
  EXPECT_EQ(session->status().code(), StatusCode::kUnavailable);
}

TEST_F(SessionGatewayTest, MillisecondsAreBilledAndPosted) {
  StartAll();
  const auto begin = std::chrono::steady_clock::now();
  auto session = Connect();
  ASSERT_NE(session, nullptr);
  std::this_thread::sleep_for(std::chrono::milliseconds(2300));
  ASSERT_TRUE(session->Close().ok());
  // However slow the machine is: not less than it was open, and not more.
  const double seconds_most =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() + 0.01;
  session::Stats stats = session->stats();
  EXPECT_GE(stats.seconds_billed, 2.2);
  EXPECT_LE(stats.seconds_billed, seconds_most);
  const auto billed_ms = static_cast<int64_t>(std::llround(stats.seconds_billed * 1e3));
  const int64_t due = gateway::ChargeAfter(gateway::kDefaultPricePerHour, billed_ms).value;
  EXPECT_EQ(static_cast<int64_t>(stats.cost_micro_usd), due);
  EXPECT_GE(stats.seconds_open, 2.2);
  EXPECT_LE(stats.seconds_open, seconds_most);
  auto ledger = gateway::Ledger::Open(gateway::AccountsPath(data())).value();
  auto usage = ledger->UsageOfAll().value();
  EXPECT_EQ(usage.device_ms, billed_ms);
  EXPECT_EQ(usage.amount.value, due);
  EXPECT_TRUE(ledger->Verify().ok());
}

// At a price of a dollar a second, a session that may cost two.
TEST_F(SessionGatewayTest, ACapEndsALiveSession_AndNothingPassesIt) {
  constexpr uint64_t kMaxCost = 2'000'000;
  gateway::GatewayOptions options;
  options.no_auth = true;
  options.core.price_per_hour = gateway::MicroUsd{3'600'000'000};
  StartGateway(options);
  StartWorker(1);
  session::SessionOptions capped = Options();
  capped.max_cost_micro_usd = kMaxCost;
  auto session = Session::Connect(capped);
  ASSERT_TRUE(session.ok()) << session.status();
  absl::Status stopped;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (stopped.ok() && std::chrono::steady_clock::now() < deadline) {
    stopped = (*session)->Sync();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_EQ(stopped.code(), StatusCode::kResourceExhausted) << stopped;
  EXPECT_NE(stopped.message().find("the cap of this session is reached"), std::string::npos);
  EXPECT_LE((*session)->stats().cost_micro_usd, kMaxCost);
  // It is parked, and its hold given back.
  const auto books = Books();
  const gateway::TenantId local{1};
  while (books->BudgetOf(local)->held.value > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(books->BudgetOf(local)->held.value, 0);
  const auto charged = static_cast<uint64_t>(books->UsageOfAll()->amount.value);
  EXPECT_LE(charged, kMaxCost);
  EXPECT_GT(charged, kMaxCost / 4);
  EXPECT_EQ(gateway_->session_count(), 1u);  // its state is kept
  EXPECT_TRUE(books->Verify().ok());

  // An account whose credit is used up opens nothing.
  ASSERT_TRUE(books->SetCreditLimit(local, gateway::MicroUsd{0}).ok());
  auto refused = Session::Connect(Options());
  EXPECT_EQ(refused.status().code(), StatusCode::kFailedPrecondition) << refused.status();
  ASSERT_TRUE(books->Credit(local, gateway::MicroUsd{100'000'000}, "a", gateway::WallNow()).ok());
  auto credited = Session::Connect(Options());
  EXPECT_TRUE(credited.ok()) << credited.status();
}

// Tried on a gateway as README starts it, where everybody is on this machine: a worker without the
// secret got the sessions of customers.
// Its transport answers pings, and what it asked for waits in the gateway.
TEST_F(SessionGatewayTest, AClientThatReadsNothingIsCutOff) {
  gateway::GatewayOptions options;
  options.no_auth = true;
  options.reader_stalls_after = std::chrono::milliseconds(300);
  StartGateway(options);
  StartWorker();
  auto stub = proto::Cloud::NewStub(
      grpc::CreateChannel(gateway_->address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  auto stream = stub->Session(&context);
  proto::ClientFrame frame;
  wire::SetRange(wire::kProtocolOfClients, *frame.add_items()->mutable_open()->mutable_protocol());
  wire::SetRange(wire::kGraphSchemas,
                 *frame.mutable_items(0)->mutable_open()->mutable_graph_schema());
  ASSERT_TRUE(stream->Write(frame));
  proto::ServerFrame answer;
  ASSERT_TRUE(stream->Read(&answer));
  const uint64_t epoch = answer.epoch();
  uint64_t seq = 0;
  const auto write = [&](const std::function<void(proto::ClientItem&)>& fill) {
    proto::ClientFrame next;
    next.set_epoch(epoch);
    next.add_items()->set_seq(++seq);
    fill(*next.mutable_items(0));
    return stream->Write(next);
  };
  const std::string bytes(wire::kPieceBytesMax, 'b');
  ASSERT_TRUE(write([&](proto::ClientItem& item) {
    proto::Put& put = *item.mutable_put();
    put.set_handle(1);
    put.set_dtype(static_cast<uint32_t>(DType::kU8));
    put.add_dims(bytes.size());
    put.set_total_bytes(bytes.size());
    put.set_data(bytes);
  }));
  // Ends when the stream does; else at the test's limit of time.
  while (write([](proto::ClientItem& item) { item.mutable_fetch()->add_handles(1); }))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  while (stream->Read(&answer)) {  // what its own end had taken meanwhile
  }
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED) << status.error_message();
}

TEST_F(SessionGatewayTest, AGatewayThatWasGivenNoSecretHasOne) {
  gateway::GatewayOptions options;
  options.no_auth = true;
  StartGateway(options);
  EXPECT_EQ(gateway_->fleet_secret().size(), 64u);
  FakeWorker rogue(gateway_->InProcessFleetChannel(), "");
  StartWorker();
  EXPECT_NE(Connect(), nullptr);
  EXPECT_EQ(gateway_->devices_total(), 1u);
  const std::string secret = gateway_->fleet_secret();
  rogue.Stop();
  worker_.reset();
  gateway_.reset();
  StartGateway(options);  // the same folder, the same secret
  EXPECT_EQ(gateway_->fleet_secret(), secret);
}

TEST_F(SessionGatewayTest, AFleetSecretIsChecked) {
  gateway::GatewayOptions options;
  options.no_auth = true;
  options.fleet_secret = "right";
  StartGateway(options);
  FakeWorker wrong(gateway_->InProcessFleetChannel(), "wrong");
  FakeWorker right(gateway_->InProcessFleetChannel(), "right");
  EXPECT_NE(Connect(), nullptr);
  EXPECT_EQ(gateway_->devices_total(), 1u);
}

}  // namespace
}  // namespace outboard
