#include "gateway/prices/price_list.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/check.h"
#include "gateway/base/own_machines.h"
#include "gateway/prices/lined_json.h"

namespace outboard::gateway {

namespace {

using Kind = LinedJson::Kind;

absl::StatusOr<const LinedJson*> Member(const LinedJson& object, std::string_view key, Kind kind,
                                        std::string_view what) {
  const LinedJson* const member = object.Find(key);
  if (member == nullptr)
    return AtLine(object.line, absl::StrCat("\"", std::string(key), "\" is missing"));
  if (member->kind != kind)
    return AtLine(member->line,
                  absl::StrCat("\"", std::string(key), "\" is ", std::string(what)));
  return member;
}

absl::Status CheckKeys(const LinedJson& object, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.members)
    if (std::find(known.begin(), known.end(), key) == known.end())
      return AtLine(value.line, absl::StrCat("\"", key, "\" is not known here"));
  return absl::OkStatus();
}

// US dollars as text or as a number, as it is written: no rounding.
absl::StatusOr<MicroUsd> PriceFrom(const LinedJson& prices, std::string_view key, bool required) {
  const LinedJson* const price = prices.Find(key);
  if (price == nullptr) {
    if (!required) return MicroUsd{};
    return AtLine(prices.line, absl::StrCat("\"", std::string(key), "\" is missing"));
  }
  const auto wrong = [&](std::string_view why) {
    return AtLine(price->line, absl::StrCat("the price \"", std::string(key), "\" of ",
                                            price->text, " US dollars: ", std::string(why)));
  };
  if (price->kind != Kind::kString && price->kind != Kind::kNumber)
    return wrong("write it as 0.50 or \"0.50\"");
  if (price->text.starts_with('-')) return wrong("a price is not below zero");
  const auto amount = ParseUsd(price->text);
  if (!amount.ok()) return wrong(std::string(amount.status().message()));
  if (const absl::Status sound = CheckPrice(*amount); !sound.ok())
    return wrong(std::string(sound.message()));
  return *amount;
}

// "512MB", "8GiB", or bytes.
absl::StatusOr<uint64_t> BytesFrom(const LinedJson& value) {
  const bool is_text = value.kind == Kind::kString || value.kind == Kind::kNumber;
  const std::optional<uint64_t> bytes = is_text ? ParseBytes(value.text) : std::nullopt;
  if (bytes.has_value()) return *bytes;
  return AtLine(value.line, absl::StrCat("\"memory\" of ", value.text,
                                         ": write \"512MB\", \"8GiB\" or bytes"));
}

absl::StatusOr<double> RateFrom(const LinedJson& rates, std::string_view key) {
  const LinedJson* const rate = rates.Find(key);
  if (rate == nullptr) return 0.0;
  double value = 0;
  if (rate->kind != Kind::kNumber || !absl::SimpleAtod(rate->text, &value) ||
      !std::isfinite(value) || value < 0)
    return AtLine(rate->line, absl::StrCat("the rate \"", std::string(key),
                                           "\" is a number that is not below zero"));
  return value;
}

absl::StatusOr<std::string> NameFrom(const LinedJson& name) {
  const bool sound = !name.text.empty() && name.text.size() <= kClassNameBytesMax &&
                     std::all_of(name.text.begin(), name.text.end(), [](char c) {
                       return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
                              c == '.' || c == '_';
                     });
  if (!sound)
    return AtLine(name.line, absl::StrCat("the name of a class has 1 to ", kClassNameBytesMax,
                                          " letters, digits, '-', '.' and '_'"));
  if (name.text == kOwnMachines)
    return AtLine(name.line, "the class \"own\" is of machines of an account's own");
  return name.text;
}

absl::StatusOr<PriceClass> ClassFrom(const LinedJson& value) {
  if (value.kind != Kind::kObject) return AtLine(value.line, "a class is an object");
  OB_RETURN_IF_ERROR(
      CheckKeys(value, {"name", "hardware", "memory", "rates", "usd_per_hour"}));
  PriceClass made;
  OB_ASSIGN_OR_RETURN(const LinedJson* const name,
                      Member(value, "name", Kind::kString, "a string"));
  OB_ASSIGN_OR_RETURN(made.name, NameFrom(*name));
  OB_ASSIGN_OR_RETURN(const LinedJson* const hardware,
                      Member(value, "hardware", Kind::kArray, "a list of strings"));
  if (hardware->items.empty() || hardware->items.size() > kHardwareOfClassMax)
    return AtLine(hardware->line, absl::StrCat("\"hardware\" has 1 to ", kHardwareOfClassMax,
                                               " entries"));
  for (const LinedJson& item : hardware->items) {
    if (item.kind != Kind::kString || item.text.empty())
      return AtLine(item.line, "\"hardware\" is a list of strings");
    made.hardware.push_back(item.text);
  }
  if (const LinedJson* const memory = value.Find("memory")) {
    OB_ASSIGN_OR_RETURN(made.memory_bytes, BytesFrom(*memory));
  }
  if (const LinedJson* const rates = value.Find("rates")) {
    if (rates->kind != Kind::kObject) return AtLine(rates->line, "\"rates\" is an object");
    OB_RETURN_IF_ERROR(CheckKeys(*rates, {"gflops", "memory_gb_per_s"}));
    OB_ASSIGN_OR_RETURN(made.rates.gflops, RateFrom(*rates, "gflops"));
    OB_ASSIGN_OR_RETURN(made.rates.memory_gb_per_s, RateFrom(*rates, "memory_gb_per_s"));
  }
  OB_ASSIGN_OR_RETURN(const LinedJson* const prices,
                      Member(value, "usd_per_hour", Kind::kObject, "an object"));
  OB_RETURN_IF_ERROR(CheckKeys(*prices, {"run", "held", "parked", "stored"}));
  OB_ASSIGN_OR_RETURN(made.run, PriceFrom(*prices, "run", /*required=*/true));
  if (prices->Find("held") != nullptr) {
    OB_ASSIGN_OR_RETURN(made.idle.held, PriceFrom(*prices, "held", /*required=*/true));
  }
  OB_ASSIGN_OR_RETURN(made.idle.parked, PriceFrom(*prices, "parked", /*required=*/false));
  OB_ASSIGN_OR_RETURN(made.idle.stored, PriceFrom(*prices, "stored", /*required=*/false));
  return made;
}

bool Matches(std::string_view pattern, std::string_view hardware) {
  if (!pattern.ends_with('*')) return pattern == hardware;
  return hardware.starts_with(pattern.substr(0, pattern.size() - 1));
}

}  // namespace

const PriceClass* PriceList::Find(std::string_view name) const {
  for (const PriceClass& one : classes)
    if (one.name == name) return &one;
  return nullptr;
}

const PriceClass* PriceList::ClassOf(std::string_view hardware, uint64_t memory_bytes) const {
  for (const PriceClass& one : classes) {
    const bool fits =
        std::any_of(one.hardware.begin(), one.hardware.end(),
                    [&](const std::string& pattern) { return Matches(pattern, hardware); });
    if (fits && memory_bytes >= one.memory_bytes) return &one;
  }
  return nullptr;
}

std::string PriceList::Names() const {
  std::string names;
  for (const PriceClass& one : classes)
    absl::StrAppend(&names, names.empty() ? "" : ", ", one.name);
  return names;
}

absl::StatusOr<PriceList> ParsePriceList(std::string_view text) {
  OB_ASSIGN_OR_RETURN(const LinedJson file, ParseLinedJson(text));
  if (file.kind != Kind::kObject) return AtLine(file.line, "a price file is an object");
  OB_RETURN_IF_ERROR(CheckKeys(file, {"classes"}));
  OB_ASSIGN_OR_RETURN(const LinedJson* const classes,
                      Member(file, "classes", Kind::kArray, "a list of classes"));
  if (classes->items.empty() || classes->items.size() > kPriceClassesMax)
    return AtLine(classes->line, absl::StrCat("a price file has 1 to ", kPriceClassesMax,
                                              " classes, this one ", classes->items.size()));
  PriceList list;
  for (const LinedJson& item : classes->items) {
    OB_ASSIGN_OR_RETURN(PriceClass one, ClassFrom(item));
    if (list.Find(one.name) != nullptr)
      return AtLine(item.line, absl::StrCat("a class \"", one.name, "\" stands here twice"));
    list.classes.push_back(std::move(one));
  }
  return list;
}

absl::StatusOr<PriceList> ReadPriceList(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::string text(kJsonBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return absl::UnavailableError(absl::StrCat(path, " cannot be read"));
  text.resize(static_cast<size_t>(file.gcount()));
  auto list = ParsePriceList(text);
  if (list.ok()) return list;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", list.status().message()));
}

absl::Status CheckRates(const PriceClass& of, const DeviceRates& measured) {
  const auto check = [&](const char* what, double promised, double reached) {
    if (promised <= 0 || reached >= (1 - kRatesTolerance) * promised) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "it reaches ", reached, " ", what, ", and the class ", of.name, " promises ", promised));
  };
  OB_RETURN_IF_ERROR(check("GFLOP/s", of.rates.gflops, measured.gflops));
  return check("GB/s of memory", of.rates.memory_gb_per_s, measured.memory_gb_per_s);
}

}  // namespace outboard::gateway
