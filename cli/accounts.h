// `outboard key` and `outboard usage`: the accounts file of a data folder, or a gateway for the
// tenant of $CLOUD_KEY.
#pragma once

#include <string>

namespace outboard::cli {

struct AccountFlags {
  std::string data;
  std::string name = "default";
  std::string tenant = "default";
  std::string id;
  std::string gateway;  // usage: ask this gateway with $CLOUD_KEY
  bool json = false;
};

int RunKeyCreate(const AccountFlags& flags);
int RunKeyList(const AccountFlags& flags);
int RunKeyRevoke(const AccountFlags& flags);
int RunUsage(const AccountFlags& flags);

}  // namespace outboard::cli
