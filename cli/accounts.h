// `outboard key` and `outboard usage`: work on the accounts file of a data folder, or ask a gateway
// for the tenant of $CLOUD_KEY.
#pragma once

#include <string>

namespace outboard::cli {

struct AccountFlags {
  std::string data;
  std::string name = "default";
  std::string tenant = "default";
  std::string id;
  std::string gateway;  // usage: asks this gateway with $CLOUD_KEY
  bool json = false;
};

int RunKeyCreate(const AccountFlags& flags);
int RunKeyList(const AccountFlags& flags);
int RunKeyRevoke(const AccountFlags& flags);
int RunUsage(const AccountFlags& flags);

}  // namespace outboard::cli
