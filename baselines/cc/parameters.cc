#include "baselines/cc/parameters.h"

#include <cmath>
#include <sstream>
#include <utility>

namespace bbrgym {

ParameterReader::ParameterReader(std::string algorithm, ParameterValues given)
    : algorithm_(std::move(algorithm)), given_(std::move(given)) {}

void ParameterReader::Field(const std::string& name, double& field, double low, double high) {
  field = Take(name, field, low, high, false);
}

void ParameterReader::Field(const std::string& name, std::int64_t& field, double low, double high) {
  field = static_cast<std::int64_t>(Take(name, static_cast<double>(field), low, high, true));
}

void ParameterReader::Field(const std::string& name, bool& field) {
  field = Take(name, field ? 1.0 : 0.0, 0.0, 1.0, true) != 0.0;
}

void ParameterReader::Finish() const {
  if (given_.empty()) return;
  std::ostringstream message;
  message << "unknown parameter '" << given_.begin()->first << "' of algorithm '" << algorithm_ << "'; known: ";
  if (defaults_.empty()) message << "none";
  for (std::size_t i = 0; i < defaults_.size(); ++i) message << (i == 0 ? "" : ", ") << defaults_[i].first;
  throw ParameterError(message.str());
}

void ParameterReader::CheckDescription(const std::string& name, double value, double low, double high) const {
  std::ostringstream message;
  message << "algorithm '" << algorithm_ << "' describes parameter '" << name << "' ";
  for (const auto& [other, ignored] : defaults_) {
    if (other != name) continue;
    message << "twice";
    throw ParameterError(message.str());
  }
  // In this form the comparisons refuse NaN too.
  if (!(low <= high)) {
    message << "with bounds in which no value is: [" << low << ", " << high << "]";
    throw ParameterError(message.str());
  }
  if (!(value >= low && value <= high)) {
    message << "with a default that must be in [" << low << ", " << high << "], got " << value;
    throw ParameterError(message.str());
  }
}

double ParameterReader::Take(const std::string& name, double current, double low, double high, bool is_whole) {
  CheckDescription(name, current, low, high);
  defaults_.emplace_back(name, current);
  const auto found = given_.find(name);
  if (found == given_.end()) return current;
  const double value = found->second;
  given_.erase(found);
  // In this form the comparison refuses NaN too.
  if (!(value >= low && value <= high) || (is_whole && value != std::floor(value))) {
    std::ostringstream message;
    message << "parameter " << name << " of algorithm '" << algorithm_ << "' must be "
            << (is_whole ? "an integer " : "") << "in [" << low << ", " << high << "], got " << value;
    throw ParameterError(message.str());
  }
  return value;
}

}  // namespace bbrgym
