#include "cli/books/fleet.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "gateway/ledger/money.h"

namespace outboard::cli {

namespace {

using Json = nlohmann::json;

// Runs `make` on the answer. Whatever is not as it should be there is one error.
template <typename Make>
absl::StatusOr<std::string> From(std::string_view answer, const Make& make) {
  try {
    return make(Json::parse(answer));
  } catch (const Json::exception&) {
    return absl::InvalidArgumentError("the gateway's answer is not as this program knows it");
  }
}

std::string Usd(int64_t micros) { return ToString(gateway::MicroUsd{micros}); }

std::string Memory(uint64_t bytes) {
  if (bytes == 0) return "any";
  return absl::StrFormat("%.1f GB", static_cast<double>(bytes) / 1e9);
}

std::string Duration(int64_t seconds) {
  if (seconds < 60) return absl::StrCat(seconds, " s");
  if (seconds < 3600) return absl::StrCat(seconds / 60, " min");
  return absl::StrFormat("%d h %02d", seconds / 3600, seconds / 60 % 60);
}

std::string AccountOf(const Json& session, const AccountNames& accounts) {
  const auto found = accounts.find(session.at("account").get<int64_t>());
  return found == accounts.end() ? absl::StrCat(session.at("account").get<int64_t>())
                                 : found->second;
}

std::string TextOrNone(const Json& value) {
  const std::string text = value.is_null() ? "" : value.get<std::string>();
  return text.empty() ? "-" : text;
}

// With the account's name beside its number.
Json Named(Json session, const AccountNames& accounts) {
  session["account_name"] = AccountOf(session, accounts);
  return session;
}

Json Devices(const Json& all, const AccountNames& accounts) {
  Json devices = Json::array();
  for (Json device : all.at("devices")) {
    device["account_name"] = nullptr;
    for (const Json& session : all.at("sessions"))
      if (!device.at("session").is_null() && session.at("session") == device.at("session"))
        device["account_name"] = AccountOf(session, accounts);
    devices.push_back(std::move(device));
  }
  return devices;
}

std::string Line(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

std::string Classes(const Json& all) {
  if (all.at("classes").is_null())
    return absl::StrCat("all devices  ", Usd(all.at("price_per_hour_micro_usd").get<int64_t>()),
                        " an hour; there is no price file (docs/prices.md)\n");
  std::string text = absl::StrFormat("%-16s  %11s  %11s  %11s  %11s  %10s  %s\n", "class", "run",
                                     "held", "parked", "stored", "memory", "hardware");
  for (const Json& of : all.at("classes")) {
    const auto usd = [&](const char* what) { return Usd(of.at(what).get<int64_t>()); };
    std::string hardware;
    for (const Json& each : of.at("hardware"))
      absl::StrAppend(&hardware, hardware.empty() ? "" : ", ", each.get<std::string>());
    absl::StrAppend(&text, absl::StrFormat("%-16s  %11s  %11s  %11s  %11s  %10s  %s\n",
                                           of.at("name").get<std::string>(), usd("run_micro_usd"),
                                           usd("held_micro_usd"), usd("parked_micro_usd"),
                                           usd("stored_micro_usd"),
                                           Memory(of.at("memory_bytes").get<uint64_t>()),
                                           hardware));
    const double gflops = of.at("gflops").get<double>();
    const double memory = of.at("memory_gb_per_s").get<double>();
    if (gflops > 0 || memory > 0)
      absl::StrAppend(&text,
                      absl::StrFormat("  rate check: %g GFLOP/s, %g GB/s\n", gflops, memory));
  }
  return text;
}

// What was measured, of which a 0 is nothing.
std::string Rate(const Json& measured) {
  const double rate = measured.get<double>();
  return rate > 0 ? absl::StrFormat("%.*f", rate < 100 ? 1 : 0, rate) : "-";
}

std::string DeviceTable(const Json& all, const AccountNames& accounts) {
  std::string text = absl::StrFormat("%-24s  %6s  %-12s  %-8s  %9s  %8s  %7s  %11s  %-12s  %s\n",
                                     "worker", "device", "class", "state", "memory", "GFLOP/s",
                                     "GB/s", "an hour", "account", "hardware");
  for (const Json& device : Devices(all, accounts))
    absl::StrAppend(
        &text,
        absl::StrFormat("%-24s  %6d  %-12s  %-8s  %9s  %8s  %7s  %11s  %-12s  %s\n",
                        device.at("worker").get<std::string>(), device.at("device").get<int64_t>(),
                        TextOrNone(device.at("class")), device.at("state").get<std::string>(),
                        Memory(device.at("memory_bytes").get<uint64_t>()),
                        Rate(device.at("gflops")), Rate(device.at("memory_gb_per_s")),
                        Usd(device.at("per_hour_micro_usd").get<int64_t>()),
                        TextOrNone(device.at("account_name")),
                        TextOrNone(device.at("hardware"))));
  return text;
}

std::string SessionLine(const Json& session, const AccountNames& accounts) {
  std::string place;
  if (!session.at("before").is_null())
    place = absl::StrCat("  ", session.at("before").get<int64_t>(), " before it");
  if (!session.at("expected_seconds").is_null())
    absl::StrAppend(&place, ", about ", Duration(session.at("expected_seconds").get<int64_t>()));
  return absl::StrFormat(
      "%-12s  %-16s  %-9s  %8s  %4d  %-20s  %11s  %11s%s",
      session.at("session").get<std::string>().substr(0, 12), AccountOf(session, accounts),
      session.at("state").get<std::string>(), Duration(session.at("state_seconds").get<int64_t>()),
      session.at("devices").get<int64_t>(), TextOrNone(session.at("worker")),
      Usd(session.at("per_hour_micro_usd").get<int64_t>()),
      Usd(session.at("cost_micro_usd").get<int64_t>()), place);
}

std::vector<std::string> TopLines(const Json& all, const AccountNames& accounts) {
  std::vector<Json> run, wait;
  int64_t per_hour = 0;
  for (const Json& session : all.at("sessions")) {
    per_hour += session.at("per_hour_micro_usd").get<int64_t>();
    (session.at("before").is_null() ? run : wait).push_back(session);
  }
  std::stable_sort(run.begin(), run.end(), [](const Json& a, const Json& b) {
    return a.at("per_hour_micro_usd").get<int64_t>() > b.at("per_hour_micro_usd").get<int64_t>();
  });
  std::stable_sort(wait.begin(), wait.end(), [](const Json& a, const Json& b) {
    return a.at("before").get<int64_t>() < b.at("before").get<int64_t>();
  });
  struct Count {
    int64_t all = 0, held = 0, other = 0;
  };
  std::map<std::string, Count> classes;
  for (const Json& device : all.at("devices")) {
    Count& of = classes[TextOrNone(device.at("class"))];
    ++of.all;
    of.held += device.at("state") == "held";
    of.other += device.at("state") != "held" && device.at("state") != "free";
  }
  std::vector<std::string> lines = {
      absl::StrCat(run.size(), " sessions, ", wait.size(), " waiting, ", Usd(per_hour),
                   " an hour")};
  for (const auto& [name, of] : classes)
    lines.push_back(absl::StrCat("devices", name == "-" ? "" : absl::StrCat(" of ", name), ": ",
                                 of.held, " of ", of.all, " in use, ", of.other,
                                 " out of service, draining or set aside"));
  lines.emplace_back();
  lines.push_back(absl::StrFormat("%-12s  %-16s  %-9s  %8s  %4s  %-20s  %11s  %11s", "session",
                                  "account", "state", "since", "dev", "worker", "an hour",
                                  "so far"));
  for (const std::vector<Json>* sessions : {&run, &wait})
    for (const Json& session : *sessions) lines.push_back(SessionLine(session, accounts));
  return lines;
}

}  // namespace

absl::StatusOr<std::string> PricesText(std::string_view answer) { return From(answer, Classes); }

absl::StatusOr<std::string> DevicesText(std::string_view answer, const AccountNames& accounts) {
  return From(answer, [&](const Json& all) { return DeviceTable(all, accounts); });
}

absl::StatusOr<std::string> TopText(std::string_view answer, const AccountNames& accounts,
                                    int lines, int columns) {
  return From(answer, [&](const Json& all) {
    std::vector<std::string> made = TopLines(all, accounts);
    const auto most = static_cast<size_t>(std::max(lines, 2));
    if (made.size() > most) {
      const size_t left_out = made.size() - most + 1;
      made.resize(most - 1);
      made.push_back(absl::StrCat("... and ", left_out, " more"));
    }
    std::string text;
    for (const std::string& line : made)
      absl::StrAppend(&text, line.substr(0, static_cast<size_t>(std::max(columns, 20))), "\n");
    return text;
  });
}

absl::StatusOr<std::string> PricesJson(std::string_view answer) {
  return From(answer, [](const Json& all) {
    return Line({{"price_per_hour_micro_usd", all.at("price_per_hour_micro_usd")},
                 {"classes", all.at("classes")}});
  });
}

absl::StatusOr<std::string> DevicesJson(std::string_view answer, const AccountNames& accounts) {
  return From(answer,
              [&](const Json& all) { return Line({{"devices", Devices(all, accounts)}}); });
}

absl::StatusOr<std::string> TopJson(std::string_view answer, const AccountNames& accounts) {
  return From(answer, [&](const Json& all) {
    Json sessions = Json::array();
    for (const Json& session : all.at("sessions")) sessions.push_back(Named(session, accounts));
    return Line({{"at", all.at("at")},
                 {"devices", Devices(all, accounts)},
                 {"sessions", std::move(sessions)}});
  });
}

}  // namespace outboard::cli
