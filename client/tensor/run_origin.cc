#include "client/tensor/run_origin.h"

#include <string>
#include <utility>

#include "client/tensor/error.h"

namespace outboard::internal {
namespace {

class Origin final : public transport::RunOrigin {
 public:
  Origin(const At& at, std::shared_ptr<const Lines> lines) : at_(at), lines_(std::move(lines)) {}

  std::string SentAt() const override { return LineOf(at_); }
  std::string WrittenAt(uint32_t node) const override {
    return node < lines_->size() ? LineOf((*lines_)[node]) : std::string();
  }

 private:
  const At at_;
  const std::shared_ptr<const Lines> lines_;
};

}  // namespace

std::shared_ptr<const transport::RunOrigin> OriginOf(const At& at,
                                                     std::shared_ptr<const Lines> lines) {
  return std::make_shared<const Origin>(at, std::move(lines));
}

}  // namespace outboard::internal
