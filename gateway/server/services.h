// CloudService and AccountService (cloud.proto, account.proto): each method starts a stream or a
// job on the pool. No decisions are made here.
#pragma once

#include <memory>

#include "base/work_queue.h"
#include "gateway/ledger/ledger.h"
#include "gateway/server/authenticator.h"
#include "proto/account.grpc.pb.h"
#include "proto/cloud.grpc.pb.h"

namespace outboard::gateway {

class CoreDriver;
class DriverHost;

class CloudService final : public proto::Cloud::CallbackService {
 public:
  CloudService(CoreDriver* driver, DriverHost* host, Authenticator* gatekeeper, WorkQueue* pool)
      : driver_(driver), host_(host), gatekeeper_(gatekeeper), pool_(pool) {}
  grpc::ServerWriteReactor<proto::ServerFrame>* Values(
      grpc::CallbackServerContext* context, const proto::ValuesRequest* request) override;
  grpc::ServerBidiReactor<proto::ClientFrame, proto::ServerFrame>* Session(
      grpc::CallbackServerContext* context) override;

 private:
  CoreDriver* const driver_;
  DriverHost* const host_;
  Authenticator* const gatekeeper_;
  WorkQueue* const pool_;
};

class AccountService final : public proto::Account::CallbackService {
 public:
  AccountService(Accounts* accounts, Ledger* ledger, Authenticator* gatekeeper, WorkQueue* pool)
      : accounts_(accounts), ledger_(ledger), gatekeeper_(gatekeeper), pool_(pool) {}
  grpc::ServerUnaryReactor* CreateKey(grpc::CallbackServerContext* context,
                                      const proto::CreateKeyRequest* request,
                                      proto::CreateKeyReply* reply) override;
  grpc::ServerUnaryReactor* ListKeys(grpc::CallbackServerContext* context,
                                     const proto::ListKeysRequest* request,
                                     proto::ListKeysReply* reply) override;
  grpc::ServerUnaryReactor* RevokeKey(grpc::CallbackServerContext* context,
                                      const proto::RevokeKeyRequest* request,
                                      proto::RevokeKeyReply* reply) override;
  grpc::ServerUnaryReactor* Usage(grpc::CallbackServerContext* context,
                                  const proto::UsageRequest* request,
                                  proto::UsageReply* reply) override;

 private:
  Accounts* const accounts_;
  Ledger* const ledger_;
  Authenticator* const gatekeeper_;
  WorkQueue* const pool_;
};

}  // namespace outboard::gateway
