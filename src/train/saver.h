// Saves checkpoints in the background and keeps the run directory in order. A failed save is told
// and survived.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

#include "checkpoint/save.h"
#include "checkpoint/snapshot.h"
#include "train/events.h"
#include "train/training_run.h"

namespace transnormer {

// Training waits while the state is copied, and where the save before is not done with yet; a
// thread writes the copy, sets the links and removes checkpoints that nothing keeps. Until it has,
// nobody else changes the run directory. It also finds the memory for the copy, from construction
// on; that stays for the copies to come. Where the run has no room for a copy
// (TrainingRun::saves_in_background), or none could be made, training waits for all of it. All but
// settle() is called by the training's thread, which alone reports events.
class Saver {
 public:
  // Both must outlive it. `on_stage` is told of the stages of each save by who writes it, and gives
  // it up by throwing.
  Saver(TrainingRun& run, Events& events, std::function<void(SaveStage)> on_stage = {});
  // Waits for a save in flight, which is then told of no more.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // All ranks call it; the first one saves. Begins to save the present state, once a save in flight
  // is done with. It is written only while the run directory is still this run's, and gets its name
  // when what was reported of the steps up to it is on the disk.
  void save();
  // Reports a save that is done with by now: `saved` or `save_failed`, of its step.
  void poll();
  // Waits for a save in flight and reports it. False where the last save failed, for whatever
  // reason.
  bool wait();
  // Waits at most that long for a save in flight, in any thread, and reports nothing. Whether none
  // is in flight any more.
  [[nodiscard]] bool settle(std::chrono::milliseconds most) const;
  // True once a save is known to have failed, whatever went well since.
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  // Of a save; written by the thread, read when it is done with.
  struct Outcome {
    std::filesystem::path path;
    std::exception_ptr fault;  // why it failed
    double seconds = 0;
  };

  // Whether the optimizer's state is spread over ranks.
  [[nodiscard]] bool is_shared() const;
  // Takes from the run what is to be saved: copies where it is written in the background, else the
  // tensors themselves.
  void take_snapshot();
  void make_optimizer_room();
  // On another rank than the first, which writes: its part of what the first takes.
  void give_state();
  // False where the system has no thread left.
  bool begin(const std::function<void()>& work);
  void join();
  void prepare_snapshot();
  void write();
  void tidy();
  void report();

  TrainingRun& run_;
  Events& events_;
  const std::function<void(SaveStage)> on_stage_;
  bool in_background_;
  Snapshot snapshot_;
  std::vector<std::vector<at::Tensor>> optimizer_room_;  // Optimizer::room_for_state
  std::int64_t sound_step_ = -1;  // the checkpoint that the snapshot's training may go back to
  double waited_s_ = 0;           // of training, for the save that was begun last
  Outcome outcome_;
  bool told_ = true;  // of that outcome
  bool failed_ = false;
  mutable std::mutex mutex_;
  mutable std::condition_variable done_;
  bool is_writing_ = false;  // guarded by the mutex
  std::thread thread_;
};

}  // namespace transnormer
