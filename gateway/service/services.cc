#include "gateway/service/services.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/service/clock.h"
#include "gateway/service/streams.h"
#include "proto/limits.h"
#include "proto/status.h"

namespace outboard::gateway {

namespace {

constexpr size_t kHashesPerQuestionMax = 32'768;  // what fits into a message

// Authenticates and answers on the pool: both read the disk.
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, Gatekeeper* gatekeeper,
                                 Pool* pool, std::function<absl::Status(const Identity&)> body) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  pool->Post([reactor, gatekeeper, bearer = Gatekeeper::Bearer(*context), body = std::move(body)] {
    auto identity = gatekeeper->Client(bearer);
    reactor->Finish(wire::ToGrpc(identity.ok() ? body(*identity) : identity.status()));
  });
  return reactor;
}

absl::StatusOr<wire::Hash> ToHash(const std::string& bytes) {
  wire::Hash hash;
  if (bytes.size() != hash.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a hash of ", bytes.size(), " bytes; expected ", hash.size()));
  }
  std::copy(bytes.begin(), bytes.end(), hash.begin());
  return hash;
}

absl::StatusOr<std::vector<wire::Hash>> ToHashes(
    const google::protobuf::RepeatedPtrField<std::string>& list) {
  if (list.size() > static_cast<int>(kHashesPerQuestionMax)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(list.size(), " hashes at once; limit ", kHashesPerQuestionMax));
  }
  std::vector<wire::Hash> hashes;
  for (const std::string& bytes : list) {
    auto hash = ToHash(bytes);
    if (!hash.ok()) return hash.status();
    hashes.push_back(*hash);
  }
  return hashes;
}

// Chunks one after the other, each in pieces. Every piece is handled on the pool and the next is
// read after it, so a client that sends faster than the disk writes waits.
class UploadStream final : public grpc::ServerReadReactor<proto::BlobPiece> {
 public:
  UploadStream(BlobStore* store, Gatekeeper* gatekeeper, Pool* pool, std::string bearer,
               proto::UploadReply* reply)
      : store_(store),
        gatekeeper_(gatekeeper),
        pool_(pool),
        bearer_(std::move(bearer)),
        reply_(reply) {
    StartRead(&piece_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) {
      if (writer_ != nullptr)
        return Finish(grpc::Status(grpc::StatusCode::ABORTED, "ended within a chunk"));
      return Finish(grpc::Status::OK);
    }
    // Finish is only called from here on, so OnDone cannot come while the job runs.
    pool_->Post([this] {
      if (absl::Status status = Take(); !status.ok()) return Finish(wire::ToGrpc(status));
      piece_.Clear();
      StartRead(&piece_);
    });
  }

  absl::Status Take() {
    if (!identity_.has_value()) {
      auto identity = gatekeeper_->Client(bearer_);
      if (!identity.ok()) return identity.status();
      identity_ = *identity;
    }
    auto hash = ToHash(piece_.chunk());
    if (!hash.ok()) return hash.status();
    if (piece_.offset() == 0) {
      if (piece_.chunk_bytes() == 0 || piece_.chunk_bytes() > wire::kBlobChunkBytes) {
        return absl::InvalidArgumentError(absl::StrCat("a chunk of ", piece_.chunk_bytes(),
                                                       " bytes; limit ", wire::kBlobChunkBytes));
      }
      auto writer = store_->Begin(identity_->tenant, *hash);
      if (!writer.ok()) return writer.status();
      writer_ = *std::move(writer);
      chunk_ = *hash;
    }
    if (writer_ == nullptr || *hash != chunk_ || piece_.offset() != writer_->bytes()) {
      return absl::InvalidArgumentError("the pieces of a chunk do not follow each other");
    }
    if (absl::Status status = writer_->Append(piece_.data()); !status.ok()) return status;
    if (writer_->bytes() < piece_.chunk_bytes()) return absl::OkStatus();
    if (absl::Status status = writer_->Finish(); !status.ok()) return status;
    reply_->set_chunks_stored(reply_->chunks_stored() + 1);
    reply_->set_bytes(reply_->bytes() + writer_->bytes());
    writer_.reset();
    return absl::OkStatus();
  }

  void OnDone() override { delete this; }

  BlobStore* const store_;
  Gatekeeper* const gatekeeper_;
  Pool* const pool_;
  const std::string bearer_;
  proto::UploadReply* const reply_;
  proto::BlobPiece piece_;
  std::optional<Identity> identity_;
  std::unique_ptr<BlobStore::Writer> writer_;
  wire::Hash chunk_{};
};

}  // namespace

grpc::ServerBidiReactor<proto::ClientFrame, proto::ServerFrame>* CloudService::Session(
    grpc::CallbackServerContext* context) {
  return new ClientStream(hub_, *context);
}

grpc::ServerBidiReactor<proto::WorkerEvent, proto::GatewayCommand>* FleetService::Join(
    grpc::CallbackServerContext* context) {
  return new ControlStream(hub_, *context, options_);
}

grpc::ServerBidiReactor<proto::ServerFrame, proto::ClientFrame>* FleetService::Attach(
    grpc::CallbackServerContext* context) {
  return new ExecutorStream(hub_, *context);
}

// ---- blobs --------------------------------------------------------------------------------------

grpc::ServerUnaryReactor* BlobService::Missing(grpc::CallbackServerContext* context,
                                               const proto::MissingRequest* request,
                                               proto::MissingReply* reply) {
  return Answer(context, gatekeeper_, pool_, [this, request, reply](const Identity& who) {
    auto hashes = ToHashes(request->chunks());
    if (!hashes.ok()) return hashes.status();
    for (const wire::Hash& hash : *hashes) {
      if (!store_->Has(who.tenant, hash)) reply->add_chunks(std::string(wire::AsBytes(hash)));
    }
    return absl::OkStatus();
  });
}

grpc::ServerReadReactor<proto::BlobPiece>* BlobService::Upload(grpc::CallbackServerContext* context,
                                                               proto::UploadReply* reply) {
  return new UploadStream(store_, gatekeeper_, pool_, Gatekeeper::Bearer(*context), reply);
}

grpc::ServerUnaryReactor* BlobService::Commit(grpc::CallbackServerContext* context,
                                              const proto::CommitRequest* request,
                                              proto::CommitReply* reply) {
  return Answer(context, gatekeeper_, pool_, [this, request](const Identity& who) {
    auto hashes = ToHashes(request->chunks());
    if (!hashes.ok()) return hashes.status();
    auto root = ToHash(request->root());
    if (!root.ok()) return root.status();
    return store_->Commit(who.tenant, *root, *hashes, request->size_bytes());
  });
}

// ---- accounts -----------------------------------------------------------------------------------

grpc::ServerUnaryReactor* AccountService::CreateKey(grpc::CallbackServerContext* context,
                                                    const proto::CreateKeyRequest* request,
                                                    proto::CreateKeyReply* reply) {
  return Answer(context, gatekeeper_, pool_, [this, request, reply](const Identity& who) {
    auto made = accounts_->CreateKey(who.tenant, request->name(), WallNow());
    if (!made.ok()) return made.status();
    reply->set_id(made->key.id);
    reply->set_key(std::string(made->text.Reveal()));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AccountService::ListKeys(grpc::CallbackServerContext* context,
                                                   const proto::ListKeysRequest* request,
                                                   proto::ListKeysReply* reply) {
  return Answer(context, gatekeeper_, pool_, [this, reply](const Identity& who) {
    auto keys = accounts_->ListKeys(who.tenant);
    if (!keys.ok()) return keys.status();
    for (const ApiKey& key : *keys) {
      proto::KeyInfo& info = *reply->add_keys();
      info.set_id(key.id);
      info.set_name(key.name);
      info.set_created_unix_s(key.created_at.unix_ms / 1000);
      info.set_revoked(key.revoked_at.has_value());
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AccountService::RevokeKey(grpc::CallbackServerContext* context,
                                                    const proto::RevokeKeyRequest* request,
                                                    proto::RevokeKeyReply* reply) {
  return Answer(context, gatekeeper_, pool_, [this, request](const Identity& who) {
    return accounts_->RevokeKey(request->id(), WallNow(), who.tenant);
  });
}

grpc::ServerUnaryReactor* AccountService::Usage(grpc::CallbackServerContext* context,
                                                const proto::UsageRequest* request,
                                                proto::UsageReply* reply) {
  return Answer(context, gatekeeper_, pool_, [this, request, reply](const Identity& who) {
    constexpr int64_t kLatest = int64_t{1} << 40;  // seconds; keeps the product below in range
    int64_t since_s = std::clamp<int64_t>(request->since_unix_s(), 0, kLatest);
    auto usage = ledger_->UsageOf(who.tenant, WallTime{since_s * 1000});
    if (!usage.ok()) return usage.status();
    auto balance = ledger_->Balance(who.tenant);
    if (!balance.ok()) return balance.status();
    for (const SessionUsage& session : usage->sessions) {
      proto::UsageLine& line = *reply->add_lines();
      line.set_session_id(session.session.Hex());
      line.set_devices(static_cast<uint32_t>(session.devices));
      line.set_started_unix_s(session.granted_at.unix_ms / 1000);
      line.set_seconds_billed(static_cast<uint64_t>(session.device_seconds));
      line.set_cost_micro_usd(static_cast<uint64_t>(session.amount.value));
    }
    reply->set_seconds_billed(static_cast<uint64_t>(usage->device_seconds));
    reply->set_cost_micro_usd(static_cast<uint64_t>(usage->amount.value));
    reply->set_balance_micro_usd(balance->value);
    return absl::OkStatus();
  });
}

}  // namespace outboard::gateway
