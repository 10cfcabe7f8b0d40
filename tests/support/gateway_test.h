// A gateway (unix socket, accounts file, blob store) and a fake worker in the test's own process.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "client/session/session.h"
#include "gateway/accounts/accounts.h"
#include "gateway/base/clock.h"
#include "gateway/ledger/ledger.h"
#include "gateway/server/gateway.h"
#include "tests/support/fake_worker.h"
#include "tests/support/temp_folder.h"

namespace outboard::test {

class GatewayTest : public ::testing::Test {
 protected:
  void TearDown() override {
    worker_.reset();
    gateway_.reset();
  }

  std::string data() const { return folder_ / "data"; }

  void StartGateway(gateway::GatewayOptions options = {}) {
    if (options.listen.empty()) options.listen = "unix:" + folder_ / "s";
    if (options.fleet_listen.empty()) options.fleet_listen = "unix:" + folder_ / "f";
    if (options.data_folder.empty()) options.data_folder = data();
    auto started = gateway::Gateway::Start(options);
    ASSERT_TRUE(started.ok()) << started.status();
    gateway_ = *std::move(started);
  }

  void StartWorker(int devices = 1) {
    worker_ = std::make_unique<FakeWorker>(gateway_->InProcessFleetChannel(),
                                           gateway_->fleet_secret(), devices);
    ASSERT_TRUE(gateway_->AwaitDevices(static_cast<uint32_t>(devices), std::chrono::seconds(30)));
  }

  // No keys, one worker.
  void StartAll(int devices = 1) {
    gateway::GatewayOptions options;
    options.no_auth = true;
    StartGateway(options);
    StartWorker(devices);
  }

  // A fresh key of the tenant "t".
  gateway::NewApiKey MakeKey(const gateway::KeyRights& rights = {}) {
    auto accounts = gateway::Accounts::Open(gateway::AccountsPath(data())).value();
    auto tenant = accounts->EnsureTenant("t", gateway::WallNow()).value();
    return accounts->CreateKey(tenant.id, "k", gateway::WallNow(), rights).value();
  }
  void RevokeKey(const gateway::NewApiKey& key) {
    auto accounts = gateway::Accounts::Open(gateway::AccountsPath(data())).value();
    ASSERT_TRUE(accounts->RevokeKey(key.key.id, gateway::WallNow()).ok());
  }
  static std::string TextOf(const gateway::NewApiKey& key) {
    return std::string(key.text.Reveal());
  }

  session::SessionOptions Options(std::string key = "") {
    session::SessionOptions options;
    options.target = gateway_->address();
    options.key = std::move(key);
    return options;
  }

  std::unique_ptr<Session> Connect(std::string key = "") {
    auto session = Session::Connect(Options(std::move(key)));
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }

  std::unique_ptr<gateway::Ledger> Books() {
    return gateway::Ledger::Open(gateway::AccountsPath(data())).value();
  }

  TempFolder folder_;
  std::unique_ptr<gateway::Gateway> gateway_;
  std::unique_ptr<FakeWorker> worker_;
};

}  // namespace outboard::test
