// The live cluster that every hostile case runs against: a gateway and a worker, in processes of
// their own, and two accounts. The honest one works through all cases; `mallory` is who breaks the
// rules.
//
// After a case, CheckAfterCase expects: the honest account's step and a fresh session's are right
// to the last bit; the gateway's descriptors and resident memory are near what they were before the
// first case. At the end, CheckAtEnd expects sound books.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "gateway/accounts/accounts.h"
#include "tests/hostile/honest_account.h"
#include "tests/hostile/hostile_client.h"
#include "tests/hostile/raw_http2.h"
#include "tests/support/cluster.h"

namespace outboard::test {

class HostileWorld {
 public:
  // Of the worker: one for the honest session, one for the fresh one, the others for mallory.
  static constexpr int kDevices = 6;
  // What a device costs, high enough that a millisecond is not rounded away: 1 USD a second.
  static constexpr int kPricePerHourUsd = 3600;

  HostileWorld();
  ~HostileWorld();

  Cluster& cluster() { return cluster_; }
  HonestAccount& honest() { return *honest_; }
  Replies& replies() { return replies_; }
  const std::string& target() const { return cluster_.target(); }
  Process& gateway() { return cluster_.gateway(); }
  Process& worker() { return *worker_; }

  // Mallory's client, from 127.0.0.2; the connection is made again for each case that asks.
  HostileClient Mallory() { return ClientOf(mallory_key_); }
  // One with another key, or without ("").
  HostileClient ClientOf(const std::string& key, const std::string& from = "127.0.0.2");
  const std::string& mallory_key() const { return mallory_key_; }
  // A connection without gRPC, with or without its beginning.
  std::unique_ptr<RawHttp2> Raw(const std::string& from = "127.0.0.2");
  // The headers of a call with mallory's key.
  std::vector<Header> Authorized(const std::string& method, std::vector<Header> more = {});

  // A new key of `tenant`.
  gateway::NewApiKey MakeKey(const std::string& tenant, const gateway::KeyRights& rights = {});
  std::unique_ptr<gateway::Accounts> accounts();

  void CheckAfterCase();
  void CheckAtEnd();
  // Those of a case that goes on beside the others, and that the gateway has not cut off yet.
  std::atomic<int> held_connections{0};

  // Of the gateway's process.
  int64_t ResidentBytes();
  int Descriptors();
  double CpuSeconds();

 private:
  Cluster cluster_;
  std::unique_ptr<Process> worker_;
  Replies replies_;
  std::string mallory_key_;
  std::unique_ptr<HonestAccount> honest_;
  int64_t resident_before_ = 0;
  int descriptors_before_ = 0;
};

}  // namespace outboard::test
