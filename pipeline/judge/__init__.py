"""Relevance judges behind one port, their calibration on human labels, and the labels of the dataset.

Three stages are the entry points: `calibration.calibrate` compares the judge with people, `stage.judge` writes its
verdicts on the pool, and `label.write_labels` turns verdicts into labels. `port.Judge` is the interface of a judge.
"""
