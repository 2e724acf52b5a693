#pragma once

#include <memory>
#include <string>
#include <vector>

#include "baselines/cc/bbrgym_controller.h"
#include "baselines/cc/controller.h"
#include "baselines/cc/parameters.h"

namespace bbrgym {

/// A controller that a user wrote in C (bbrgym_controller.h), as a loaded shared object: the algorithm `file`.
class ControllerFile : public std::enable_shared_from_this<ControllerFile> {
 public:
  /// Loads a shared object, which then runs its own code in this process. Errors call it by its name without folder and
  /// suffix. Throws `ParameterError` if it cannot be loaded or is not what the header describes.
  static std::shared_ptr<const ControllerFile> Load(const std::string& path);

  ~ControllerFile();
  ControllerFile(const ControllerFile&) = delete;
  ControllerFile& operator=(const ControllerFile&) = delete;

  /// Throws `ParameterError` for an unknown parameter, or a value that is out of its bounds.
  void Check(const ParameterValues& parameters) const { static_cast<void>(Read(parameters)); }

  /// Makes a flow's controller, which keeps the file loaded. Throws as `Check`.
  std::unique_ptr<Controller> Make(const Connection& connection, const ParameterValues& parameters) const;

  const std::string& name() const { return name_; }
  const struct bbrgym_controller& callbacks() const { return *callbacks_; }

 private:
  ControllerFile() = default;
  std::vector<double> Read(const ParameterValues& parameters) const;

  std::string name_;
  void* library_ = nullptr;
  const struct bbrgym_controller* callbacks_ = nullptr;
};

}  // namespace bbrgym
