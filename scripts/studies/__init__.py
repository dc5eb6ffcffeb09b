"""The parts of scripts/study.py, from the bottom up: plan, program, runs, results, report, pictures."""
