#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace bbrgym {

/// Parameters by name, as in configuration files and Python; a flag is 0 or 1.
using ParameterValues = std::map<std::string, double>;

/// An unknown parameter or a value out of range; the message names the good ones.
class ParameterError : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

/// Reads the parameter struct of a controller from values by name, and lists its fields. A struct describes itself
/// once:
///
///     void Describe(ParameterReader& reader) { reader.Field("beta", beta, 0.1, 1.0); }
class ParameterReader {
 public:
  ParameterReader(std::string algorithm, ParameterValues given);

  /// Records the default of the field and takes the given value, if any, which must be in [low, high].
  void Field(const std::string& name, double& field, double low, double high);
  /// As above; the value must be an integer.
  void Field(const std::string& name, std::int64_t& field, double low, double high);
  /// As above; the value must be 0 or 1.
  void Field(const std::string& name, bool& field);

  /// Throws `ParameterError` if a value was given that no field took.
  void Finish() const;

  /// The fields with their defaults, in the order of their description.
  const std::vector<std::pair<std::string, double>>& defaults() const { return defaults_; }

 private:
  /// Throws `ParameterError` unless the description makes sense: that of a C file is somebody else's.
  void CheckDescription(const std::string& name, double value, double low, double high) const;
  double Take(const std::string& name, double current, double low, double high, bool is_whole);

  std::string algorithm_;
  ParameterValues given_;
  std::vector<std::pair<std::string, double>> defaults_;
};

/// Returns a parameter struct with the given values in place of its defaults. Throws `ParameterError`.
template <typename Parameters>
Parameters ReadParameters(const std::string& algorithm, const ParameterValues& given) {
  Parameters parameters;
  ParameterReader reader(algorithm, given);
  parameters.Describe(reader);
  reader.Finish();
  return parameters;
}

}  // namespace bbrgym
