"""Who is relevant to what: judges behind one port, calibration on human labels, and the labels of the dataset.

Three stages are the way in: `calibration.calibrate` holds the judge against people, `stage.judge` writes its verdicts
on the pool, `label.label` makes labels of them. `port.Judge` is what a judge is.
"""
